/* A stand-in for libnvidia-ml.so.1 with as many GPUs as $FAKE_NVML has lines:
 *
 *     total_mib reserved_mib used_mib fault name uuid
 *
 * The file is read anew at every memory call, so that a test moves memory by replacing it. fault is the number
 * that the call returns instead (15: the GPU is lost, 3: not supported), and -1 fills the answer with ones, as
 * drivers do with what they do not have. With BEFORE_R510 defined the v2 call is
 * missing, as in old drivers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, BAD_ARGUMENT = 2, NOT_SUPPORTED = 3, TOO_SMALL = 7, NO_DRIVER = 9 };
enum { MOST = 16, V2 = (int)sizeof(unsigned long long) * 5 | 2 << 24 };

struct gpu { unsigned long long total, reserved, used; int fault; char name[64], uuid[64]; };
struct v1 { unsigned long long total, free, used; };
struct v2 { unsigned version; unsigned long long total, reserved, free, used; };

static struct gpu gpus[MOST];
static int ready;

static int load(void) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    int count = 0;
    if (!file) return -1;
    while (count < MOST) {
        struct gpu *g = &gpus[count];
        if (fscanf(file, "%llu %llu %llu %d %63s %63s", &g->total, &g->reserved, &g->used, &g->fault,
                   g->name, g->uuid) != 6) break;
        g->total <<= 20, g->reserved <<= 20, g->used <<= 20;
        count++;
    }
    fclose(file);
    return count;
}

static int text(const char *from, char *to, unsigned size) {
    if (strlen(from) + 1 > size) return TOO_SMALL;
    strcpy(to, from);
    return SUCCESS;
}

static struct gpu *of(void *handle) { return &gpus[(long)handle - 1]; }

int nvmlInitWithFlags(unsigned flags) { (void)flags; ready = load() >= 0; return ready ? SUCCESS : NO_DRIVER; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { ready = 0; return SUCCESS; }
const char *nvmlErrorString(int number) { return number == 15 ? "GPU is lost" : number == NOT_SUPPORTED ? "Not Supported" : number == NO_DRIVER ? "Driver Not Loaded" : "Unknown Error"; }
int nvmlSystemGetDriverVersion(char *to, unsigned size) { return text("575.1-fake", to, size); }
int nvmlDeviceGetCount_v2(unsigned *count) { if (!ready) return UNINITIALIZED; *count = load(); return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    if (!ready) return UNINITIALIZED;
    if ((int)index >= load()) return BAD_ARGUMENT;
    *handle = (void *)(long)(index + 1);
    return SUCCESS;
}
int nvmlDeviceGetName(void *handle, char *to, unsigned size) { return text(of(handle)->name, to, size); }
int nvmlDeviceGetUUID(void *handle, char *to, unsigned size) { return text(of(handle)->uuid, to, size); }

/* as the driver: used of v1 holds what is reserved, used of v2 does not */
int nvmlDeviceGetMemoryInfo(void *handle, struct v1 *info) {
    struct gpu *g = of(handle);
    load();
    if (g->fault > 0) return g->fault;
    info->total = g->total, info->used = g->used + g->reserved, info->free = g->total - info->used;
    if (g->fault < 0) memset(info, 0xff, sizeof *info);
    return SUCCESS;
}
#ifndef BEFORE_R510
int nvmlDeviceGetMemoryInfo_v2(void *handle, struct v2 *info) {
    struct gpu *g = of(handle);
    load();
    if (g->fault > 0) return g->fault;
    if (info->version != V2) return BAD_ARGUMENT;
    info->total = g->total, info->reserved = g->reserved, info->used = g->used;
    info->free = g->total - g->used - g->reserved;
    if (g->fault < 0) info->total = info->free = info->used = info->reserved = ~0ULL;
    return SUCCESS;
}
#endif
