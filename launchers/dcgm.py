"""The page of a DCGM exporter: which GPUs it shows, and how full they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from launchers.scrape import series

MIB = 1 << 20
FB_USED = "DCGM_FI_DEV_FB_USED"
FB_FREE = "DCGM_FI_DEV_FB_FREE"
FB_RESERVED = "DCGM_FI_DEV_FB_RESERVED"
FB_TOTAL = "DCGM_FI_DEV_FB_TOTAL"
FIELDS = (FB_USED, FB_FREE, FB_RESERVED, FB_TOTAL)
# dcgm_structs.h: a value that DCGM does not have is DCGM_INT32_BLANK, _INT64_BLANK or _FP64_BLANK, or up to 15
# more for the reason; the smallest of the three would be 2 PiB
BLANK_MIB = 0x7FFFFFF0
_MOST_DIGITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class DcgmGpu:
    """One GPU of a DCGM page; ``why`` says why ``used_bytes``, or else ``total_bytes``, is None."""

    gpu: int
    name: str | None
    uuid: str | None
    driver: str | None
    used_bytes: int | None
    total_bytes: int | None
    reserved_known: bool
    why: str | None


def dcgm_gpus(text: str) -> tuple[DcgmGpu, ...]:
    """Return the GPUs of a DCGM exporter's page, whose sizes are MiB, by number.

    used = FB_USED + FB_RESERVED and total = FB_TOTAL, or used + free + reserved. MIG instances of a GPU add
    up; lines that repeat one (a line a pod) count once. A value that is no size (blank, NaN, negative) is None.
    """
    sizes: dict[int, dict[str, dict[str, float]]] = {}
    labels: dict[int, Mapping[str, str]] = {}
    for one in series(text):
        gpu = one.labels.get("gpu", "")
        if one.name in FIELDS and gpu.isascii() and gpu.isdigit() and len(gpu) <= _MOST_DIGITS:
            labels.setdefault(int(gpu), one.labels)
            of_gpu = sizes.setdefault(int(gpu), {})
            of_gpu.setdefault(one.name, {})[one.labels.get("GPU_I_ID", "")] = one.value
    return tuple(_dcgm_gpu(gpu, labels[gpu], sizes[gpu]) for gpu in sorted(sizes))


def _dcgm_gpu(
    gpu: int, labels: Mapping[str, str], sizes: Mapping[str, Mapping[str, float]]
) -> DcgmGpu:
    faults = {name: _fault(name, sizes.get(name)) for name in FIELDS}
    used, free, reserved, total = (
        None if faults[name] else int(sum(sizes[name].values()) * MIB) for name in FIELDS
    )
    if total is None and used is not None and free is not None:
        total = used + free + (reserved or 0)
    if used is not None:
        used += reserved or 0
    return DcgmGpu(
        gpu=gpu,
        name=labels.get("modelName"),
        uuid=labels.get("UUID"),
        driver=labels.get("DCGM_FI_DRIVER_VERSION"),
        used_bytes=used,
        total_bytes=total or None,
        reserved_known=reserved is not None,
        why=faults[FB_USED] or (None if total else faults[FB_FREE] or f"{FB_TOTAL} is 0"),
    )


def _fault(field: str, instances: Mapping[str, float] | None) -> str | None:
    """Return why a field gives no size, None if it gives one."""
    if not instances:
        return f"the page has no {field}"
    for mib in instances.values():
        if math.isnan(mib) or mib < 0:
            return f"{field} is {mib:g}, which is no size"
        if mib >= BLANK_MIB:
            return f"{field} is blank ({mib:g}): DCGM does not have it"
    return None
