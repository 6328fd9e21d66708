"""Where GPU memory is read: the driver's NVML, or the page of a DCGM exporter.

used = total - free, so that what the driver reserves counts as used whatever a driver's version calls it.
A value that cannot be had is None with the reason, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pynvml

from launchers.fetch import UnreachableError, fetch
from launchers.scrape import series
from reports.manifest import Gpu

MIB = 1 << 20


class SourceError(Exception):
    """A memory source that cannot be used at all: the cause and the mend."""

    def __init__(self, cause: str, mend: str) -> None:
        super().__init__(f"{cause}; {mend}")
        self.cause = cause
        self.mend = mend


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to watch: the node's name, the page (``dcgm``), and which of the node's GPUs.

    ``visible`` is CUDA_VISIBLE_DEVICES if it is set; ``first`` is how many of the (visible) GPUs the engine
    uses, 0 if that is not known.
    """

    node: str
    url: str | None = None
    visible: str | None = None
    first: int = 0
    within_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One GPU's memory at one sweep, in bytes."""

    gpu: int
    used_bytes: int | None
    total_bytes: int | None
    why: str | None = None


class MemorySource(Protocol):
    """Something that reads the memory of a node's GPUs. ``warnings`` are for the report."""

    warnings: tuple[str, ...]

    def gpus(self) -> tuple[Gpu, ...]:
        """Return what is known of the watched GPUs; empty as long as nothing is."""
        ...

    def sweep(self) -> tuple[Reading, ...]:
        """Return one reading of each watched GPU, in the order of their numbers.

        Raises UnreachableError if nothing could be read and the GPUs are not known either.
        """
        ...

    def close(self) -> None:
        """Let go of the source."""
        ...


class Nvml:
    """The driver of this machine, through libnvidia-ml.so.1."""

    def __init__(self, order: Order) -> None:
        self.warnings: tuple[str, ...] = ()
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as fault:
            raise SourceError(
                f"NVML cannot be used here: {fault}",
                "install the NVIDIA driver, or write telemetry: {memory: none} or {dcgm: URL}",
            ) from fault
        self._handles = dict(_watched(order))
        self._gpus = tuple(_facts(order.node, gpu, h) for gpu, h in self._handles.items())

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the watched GPUs; their numbers are NVML's, in the order of the PCI bus."""
        return self._gpus

    def sweep(self) -> tuple[Reading, ...]:
        """Return one reading a GPU, some microseconds each."""
        return tuple(_reading(gpu, handle) for gpu, handle in self._handles.items())

    def close(self) -> None:
        """Shut NVML down."""
        pynvml.nvmlShutdown()


def _watched(order: Order) -> Iterable[tuple[int, Any]]:
    count = int(pynvml.nvmlDeviceGetCount())
    handles = {index: pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)}
    uuids = {index: _value(pynvml.nvmlDeviceGetUUID, handle) for index, handle in handles.items()}
    chosen = visible_gpus(order.visible, uuids)
    if len(chosen) < max(1, order.first):
        raise SourceError(
            f"the engine is to use {max(1, order.first)} GPUs, and {len(chosen)} of {count} are "
            "visible to it",
            "check gpus:, parallel: and CUDA_VISIBLE_DEVICES",
        )
    for index in sorted(chosen[: order.first] if order.first else chosen):
        yield index, handles[index]


def visible_gpus(setting: str | None, uuids: Mapping[int, str | None]) -> tuple[int, ...]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES leaves, in its order; as in CUDA the first bad word ends it.

    >>> visible_gpus("1,GPU-aa,7,0", {0: "GPU-bbbb", 1: "GPU-cccc", 2: "GPU-aaaa"})
    (1, 2)
    """
    if setting is None:
        return tuple(uuids)
    chosen: list[int] = []
    for word in (part.strip() for part in setting.split(",")):
        if word.isascii() and word.isdigit():
            found = [int(word)] if int(word) in uuids else []
        else:
            found = [i for i, uuid in uuids.items() if word and uuid and uuid.startswith(word)]
        if len(found) != 1 or found[0] in chosen:
            break
        chosen += found
    return tuple(chosen)


def _reading(gpu: int, handle: Any) -> Reading:
    try:
        try:
            info = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        except pynvml.NVMLError_FunctionNotFound:
            info = pynvml.nvmlDeviceGetMemoryInfo(handle)  # a driver before R510
    except pynvml.NVMLError as fault:
        return Reading(gpu=gpu, used_bytes=None, total_bytes=None, why=f"NVML: {fault}")
    if info.total <= 0 or info.free > info.total:
        why = f"NVML reports {info.free} bytes free of {info.total}"
        return Reading(gpu=gpu, used_bytes=None, total_bytes=None, why=why)
    return Reading(
        gpu=gpu, used_bytes=int(info.total) - int(info.free), total_bytes=int(info.total)
    )


def _facts(node: str, gpu: int, handle: Any) -> Gpu:
    return Gpu(
        node=node,
        gpu=gpu,
        name=_value(pynvml.nvmlDeviceGetName, handle),
        uuid=_value(pynvml.nvmlDeviceGetUUID, handle),
        total_bytes=_reading(gpu, handle).total_bytes,
        driver=_value(pynvml.nvmlSystemGetDriverVersion),
    )


def _value(ask: Callable[..., object], *handle: Any) -> str | None:
    try:
        told = ask(*handle)
    except pynvml.NVMLError:
        return None
    return told.decode() if isinstance(told, bytes) else str(told)


FB_USED = "DCGM_FI_DEV_FB_USED"
FB_FREE = "DCGM_FI_DEV_FB_FREE"
FB_RESERVED = "DCGM_FI_DEV_FB_RESERVED"
FB_TOTAL = "DCGM_FI_DEV_FB_TOTAL"
FIELDS = (FB_USED, FB_FREE, FB_RESERVED, FB_TOTAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class DcgmGpu:
    """One GPU of a DCGM page."""

    gpu: int
    name: str | None
    uuid: str | None
    driver: str | None
    used_bytes: int | None
    total_bytes: int | None
    reserved_known: bool


def dcgm_gpus(text: str) -> tuple[DcgmGpu, ...]:
    """Return the GPUs of a DCGM exporter's page, whose sizes are MiB, by number.

    used = FB_USED + FB_RESERVED and total = FB_TOTAL, or used + free + reserved. MIG instances of a GPU add
    up; lines that repeat one (a line a pod) count once.
    """
    sizes: dict[int, dict[str, dict[str, float]]] = {}
    labels: dict[int, Mapping[str, str]] = {}
    for one in series(text):
        gpu = one.labels.get("gpu", "")
        if one.name in FIELDS and gpu.isascii() and gpu.isdigit():
            labels.setdefault(int(gpu), one.labels)
            of_gpu = sizes.setdefault(int(gpu), {})
            of_gpu.setdefault(one.name, {})[one.labels.get("GPU_I_ID", "")] = one.value
    return tuple(_dcgm_gpu(gpu, labels[gpu], sizes[gpu]) for gpu in sorted(sizes))


def _dcgm_gpu(
    gpu: int, labels: Mapping[str, str], sizes: Mapping[str, Mapping[str, float]]
) -> DcgmGpu:
    used, free, reserved, total = (
        int(sum(sizes[name].values()) * MIB) if name in sizes else None for name in FIELDS
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
        total_bytes=total,
        reserved_known=reserved is not None,
    )


class Dcgm:
    """A DCGM exporter's page, read at every sweep. Its own interval (30 s by default) bounds what it shows."""

    def __init__(self, order: Order) -> None:
        assert order.url is not None
        self.warnings: tuple[str, ...] = ()
        self._order = order
        self._url = order.url
        self._gpus: tuple[Gpu, ...] = ()

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the GPUs that the page has shown so far."""
        return self._gpus

    def sweep(self) -> tuple[Reading, ...]:
        """Return one reading a GPU; of known GPUs also when the page is silent or leaves one out."""
        try:
            reply = fetch(self._url, within_s=self._order.within_s)
            if reply.status != 200:
                raise UnreachableError("answer", f"answers {reply.status}")
        except UnreachableError as fault:
            if not self._gpus:
                raise
            return self._without(f"{self._url}: {fault}", ())
        shown = dcgm_gpus(reply.body.decode("utf-8", "replace"))
        if not shown and not self._gpus:
            raise UnreachableError("answer", f"has no {FB_USED} with a gpu label")
        self._learn(shown)
        readings = tuple(
            Reading(
                gpu=one.gpu,
                used_bytes=one.used_bytes,
                total_bytes=one.total_bytes,
                why=None if one.used_bytes is not None else f"the page has no {FB_USED}",
            )
            for one in shown
        )
        return self._without("the page no longer has this GPU", readings)

    def close(self) -> None:
        """Nothing is held between sweeps."""

    def _learn(self, shown: tuple[DcgmGpu, ...]) -> None:
        known = {gpu.gpu for gpu in self._gpus}
        fresh = tuple(
            Gpu(
                node=self._order.node,
                gpu=one.gpu,
                name=one.name,
                uuid=one.uuid,
                total_bytes=one.total_bytes,
                driver=one.driver,
            )
            for one in shown
            if one.gpu not in known
        )
        self._gpus += fresh
        if fresh and not all(one.reserved_known for one in shown):
            self.warnings = (
                f"{self._url} has no {FB_RESERVED}: what the driver reserves is not counted as used",
            )

    def _without(self, why: str, readings: tuple[Reading, ...]) -> tuple[Reading, ...]:
        shown = {reading.gpu for reading in readings}
        absent = tuple(
            Reading(gpu=gpu.gpu, used_bytes=None, total_bytes=gpu.total_bytes, why=why)
            for gpu in self._gpus
            if gpu.gpu not in shown
        )
        return tuple(sorted((*readings, *absent), key=lambda reading: reading.gpu))


SOURCES: dict[str, Callable[[Order], MemorySource]] = {"nvml": Nvml, "dcgm": Dcgm}
