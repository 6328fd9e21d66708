/* A server that streams tokens and remembers when it read each request and wrote each token.
 *
 * usage: truth OUT TTFT_US ITL_US      prints its port, serves 127.0.0.1, writes OUT when it gets SIGTERM
 *
 * A line of OUT is a request: its X-Request-Id, then nanoseconds of CLOCK_MONOTONIC: after the read that completed
 * it, and before the write of each token. Tokens per request are the max_tokens of its body. It shares no code with
 * the generator that it measures, and no clock but the kernel's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define ROOM (1 << 18)
#define SPIN_NS 60000

typedef struct {
    int fd, tokens, sent;
    size_t have;
    int64_t next_ns;
    char *in;
    long record;
} Connection;

typedef struct {
    char id[80];
    int64_t read_ns;
    int tokens;
    int64_t *written_ns;
} Record;

static Connection *heap[65536];
static int heap_size;
static Record *records;
static long record_count, record_room;
static int64_t ttft_ns, itl_ns;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void push(Connection *c) {
    int i = heap_size++;
    while (i && heap[(i - 1) / 2]->next_ns > c->next_ns) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = c;
}

static Connection *pop(void) {
    Connection *top = heap[0], *last = heap[--heap_size];
    int i = 0;
    for (int child; (child = 2 * i + 1) < heap_size; i = child) {
        if (child + 1 < heap_size && heap[child + 1]->next_ns < heap[child]->next_ns) child++;
        if (heap[child]->next_ns >= last->next_ns) break;
        heap[i] = heap[child];
    }
    if (heap_size) heap[i] = last;
    return top;
}

static void put(Connection *c, const char *data, size_t size) {
    /* replies are small: a full socket buffer is a client that does not read */
    if (write(c->fd, data, size) != (ssize_t)size) fprintf(stderr, "truth: short write to a client\n");
}

static size_t event(char *out, const char *json) {
    return (size_t)sprintf(out, "%zx\r\ndata: %s\n\n\r\n", strlen(json) + 8, json);
}

static void token(Connection *c) {
    Record *r = &records[c->record];
    char out[4096], json[1024];
    int last = c->sent + 1 == r->tokens;
    size_t size = 0;
    sprintf(json,
            "{\"id\":\"chatcmpl-%s\",\"object\":\"chat.completion.chunk\",\"created\":1796050000,\"model\":\"truth\","
            "\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"logprobs\":null,\"finish_reason\":%s}]}",
            r->id, last ? "\"length\"" : "null");
    size = event(out, json);
    if (last) {
        sprintf(json, "{\"id\":\"chatcmpl-%s\",\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"total_tokens\":%d,"
                      "\"completion_tokens\":%d}}", r->id, r->tokens + 1, r->tokens);
        size += event(out + size, json);
        size += event(out + size, "[DONE]");
        size += (size_t)sprintf(out + size, "0\r\n\r\n");
    }
    r->written_ns[c->sent++] = now_ns();
    put(c, out, size);
    if (!last) {
        c->next_ns += itl_ns;
        push(c);
    }
}

static void asked(Connection *c, char *body, int64_t read_ns) {
    static const char head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
                               "transfer-encoding: chunked\r\n\r\n";
    char *id = strcasestr(c->in, "x-request-id: "), *count = strstr(body, "\"max_tokens\":");
    if (!id || !count) {
        fprintf(stderr, "truth: a request without X-Request-Id or max_tokens\n");
        exit(1);
    }
    if (record_count == record_room) {
        record_room = record_room ? 2 * record_room : 4096;
        records = realloc(records, (size_t)record_room * sizeof *records);
        if (!records) die("realloc");
    }
    Record *r = &records[record_count];
    sscanf(id + 14, "%79[^\r]", r->id);
    r->read_ns = read_ns;
    r->tokens = atoi(count + 13);
    r->written_ns = calloc((size_t)r->tokens, sizeof(int64_t));
    if (!r->written_ns) die("calloc");
    c->record = record_count++;
    c->sent = 0;
    c->next_ns = read_ns + ttft_ns;
    put(c, head, sizeof head - 1);
    push(c);
}

static int readable(Connection *c) {
    for (;;) {
        ssize_t n = read(c->fd, c->in + c->have, ROOM - 1 - c->have);
        int64_t at_ns = now_ns();
        if (n < 0) return errno == EAGAIN;
        if (n == 0) return 0;
        c->have += (size_t)n;
        c->in[c->have] = 0;
        char *end = strstr(c->in, "\r\n\r\n"), *length = end ? strcasestr(c->in, "content-length: ") : NULL;
        if (!end || !length || length > end) continue;
        size_t whole = (size_t)(end + 4 - c->in) + strtoul(length + 16, NULL, 10);
        if (whole >= ROOM) {
            fprintf(stderr, "truth: a request of %zu bytes is too large\n", whole);
            exit(1);
        }
        if (c->have < whole) continue;
        asked(c, end + 4, at_ns);
        c->have = 0;
    }
}

static void write_out(const char *path) {
    FILE *out = fopen(path, "w");
    if (!out) die(path);
    for (long i = 0; i < record_count; i++) {
        fprintf(out, "%s %lld", records[i].id, (long long)records[i].read_ns);
        for (int k = 0; k < records[i].tokens; k++) fprintf(out, " %lld", (long long)records[i].written_ns[k]);
        fputc('\n', out);
    }
    fclose(out);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: truth OUT TTFT_US ITL_US\n");
        return 2;
    }
    ttft_ns = atoll(argv[2]) * 1000;
    itl_ns = atoll(argv[3]) * 1000;
    signal(SIGPIPE, SIG_IGN);
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, NULL);
    int signals = signalfd(-1, &ends, SFD_NONBLOCK), listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), epoll = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (bind(listening, (struct sockaddr *)&address, size) || listen(listening, 4096)) die("listen");
    getsockname(listening, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    struct epoll_event want = {.events = EPOLLIN, .data.ptr = &signals}, got[256];
    epoll_ctl(epoll, EPOLL_CTL_ADD, signals, &want);
    want.data.ptr = &listening;
    epoll_ctl(epoll, EPOLL_CTL_ADD, listening, &want);
    want.data.ptr = &timer;
    epoll_ctl(epoll, EPOLL_CTL_ADD, timer, &want);
    for (;;) {
        if (heap_size) {
            int64_t wake = heap[0]->next_ns - SPIN_NS;
            struct itimerspec at = {.it_value = {wake / 1000000000, wake % 1000000000}};
            timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
        }
        int n = epoll_wait(epoll, got, 256, -1);
        for (int i = 0; i < n; i++) {
            void *what = got[i].data.ptr;
            if (what == &signals) {
                write_out(argv[1]);
                return 0;
            } else if (what == &timer) {
                uint64_t ticks;
                if (read(timer, &ticks, sizeof ticks) < 0) continue;
            } else if (what == &listening) {
                int fd;
                while ((fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                    int one = 1;
                    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                    Connection *c = calloc(1, sizeof *c);
                    if (!c || !(c->in = malloc(ROOM))) die("malloc");
                    c->fd = fd;
                    want.data.ptr = c;
                    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &want);
                }
            } else if (!readable(what)) {
                Connection *c = what; /* its memory stays: a token of it may still be due */
                epoll_ctl(epoll, EPOLL_CTL_DEL, c->fd, NULL);
                close(c->fd);
            }
        }
        while (heap_size && heap[0]->next_ns - SPIN_NS <= now_ns()) {
            while (now_ns() < heap[0]->next_ns) {}
            token(pop());
        }
    }
}
