"""Where GPU memory is read: the driver's NVML, or the page of a DCGM exporter.

used = total - free, so that what the driver reserves counts as used whatever a driver's version calls it.
A value that cannot be had is None with the reason, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pynvml

from launchers.choice import Order, SourceError, choose
from launchers.dcgm import BLANK_MIB, FB_RESERVED, FB_USED, MIB, DcgmGpu, dcgm_gpus
from launchers.fetch import UnreachableError, fetch
from reports.manifest import Gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One GPU's memory at one sweep, in bytes."""

    gpu: int
    used_bytes: int | None
    total_bytes: int | None
    why: str | None = None


class MemorySource(Protocol):
    """Something that reads the memory of a node's GPUs. ``warnings`` are for the report.

    ``lacking`` says why the GPUs seen so far cannot be all that the engine uses, None if they can.
    """

    warnings: tuple[str, ...]
    lacking: SourceError | None

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
    """The driver of this machine, through libnvidia-ml.so.1; it lacks nothing, or cannot be made."""

    lacking: SourceError | None = None

    def __init__(self, order: Order) -> None:
        try:
            pynvml.nvmlInit()
            count = int(pynvml.nvmlDeviceGetCount())
            handles = {n: pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(count)}
        except pynvml.NVMLError as fault:
            raise SourceError(
                f"NVML cannot be used here: {fault}",
                "install the NVIDIA driver, or write telemetry: {memory: none} or {dcgm: URL}",
            ) from fault
        uuids = {gpu: _value(pynvml.nvmlDeviceGetUUID, handle) for gpu, handle in handles.items()}
        choice = choose(order, uuids)
        if choice.lacking is not None:
            raise choice.lacking
        self.warnings: tuple[str, ...] = () if choice.warning is None else (choice.warning,)
        self._handles = {gpu: handles[gpu] for gpu in choice.gpus}
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


def _reading(gpu: int, handle: Any) -> Reading:
    try:
        try:
            info = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        except pynvml.NVMLError_FunctionNotFound:
            info = pynvml.nvmlDeviceGetMemoryInfo(handle)  # a driver before R510
    except pynvml.NVMLError as fault:
        return Reading(gpu=gpu, used_bytes=None, total_bytes=None, why=f"NVML: {fault}")
    # what a driver does not have it fills with ones: 2^64 - 1
    if not 0 < info.total < BLANK_MIB * MIB or info.free > info.total:
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


class Dcgm:
    """A DCGM exporter's page, read at every sweep. Its own interval (30 s by default) bounds what it shows."""

    def __init__(self, order: Order) -> None:
        assert order.url is not None
        self.warnings: tuple[str, ...] = ()
        self.lacking: SourceError | None = None
        self._order = order
        self._url = order.url
        self._shown: dict[int, Gpu] = {}
        self._gpus: tuple[int, ...] = ()
        self._settled = False
        self._reserving: set[int] = set()

    def gpus(self) -> tuple[Gpu, ...]:
        """Return the engine's GPUs that the page has shown so far."""
        return tuple(self._shown[gpu] for gpu in self._gpus)

    def sweep(self) -> tuple[Reading, ...]:
        """Return one reading a GPU; of known GPUs also when the page is silent or leaves one out."""
        try:
            reply = fetch(self._url, within_s=self._order.within_s)
            if reply.status != 200:
                raise UnreachableError("answer", f"answers {reply.status}")
        except UnreachableError as fault:
            if not self._gpus:
                raise
            return tuple(self._unread(gpu, f"{self._url}: {fault}") for gpu in self._gpus)
        page = {one.gpu: one for one in dcgm_gpus(reply.body.decode("utf-8", "replace"))}
        if not page and not self._gpus:
            raise UnreachableError("answer", f"has no {FB_USED} with a gpu label")
        for one in page.values():
            self._learn(one)
        if not self._settled:
            self._choose(page)
        return tuple(
            self._reading(page[gpu])
            if gpu in page
            else self._unread(gpu, "the page no longer has this GPU")
            for gpu in self._gpus
        )

    def close(self) -> None:
        """Nothing is held between sweeps."""

    def _learn(self, one: DcgmGpu) -> None:
        known = self._shown.get(one.gpu)
        if known is None:
            self._shown[one.gpu] = Gpu(
                node=self._order.node,
                gpu=one.gpu,
                name=one.name,
                uuid=one.uuid,
                total_bytes=one.total_bytes,
                driver=one.driver,
            )
        elif known.total_bytes is None:
            self._shown[one.gpu] = replace(known, total_bytes=one.total_bytes)

    def _choose(self, page: Mapping[int, DcgmGpu]) -> None:
        order = self._order
        choice = choose(order, {gpu: facts.uuid for gpu, facts in self._shown.items()})
        self._gpus = choice.gpus
        self.lacking = choice.lacking
        # whoever shows up later is a neighbour, unless all that is shown counts
        self._settled = self.lacking is None and bool(order.gpus or order.first)
        without = [gpu for gpu in self._gpus if gpu in page and not page[gpu].reserved_known]
        self.warnings = () if choice.warning is None else (choice.warning,)
        if without:
            self.warnings += (
                f"{self._url} has no {FB_RESERVED}: what the driver reserves is not counted as used",
            )

    def _reading(self, one: DcgmGpu) -> Reading:
        if one.reserved_known:
            self._reserving.add(one.gpu)
        elif one.used_bytes is not None and one.gpu in self._reserving:
            return self._unread(one.gpu, f"the page no longer has {FB_RESERVED} of this GPU")
        if one.used_bytes is None:
            return self._unread(one.gpu, one.why)
        # a GPU keeps its size, so that one sweep without it loses nothing
        total_bytes = one.total_bytes or self._shown[one.gpu].total_bytes
        why = one.why if total_bytes is None else None
        return Reading(gpu=one.gpu, used_bytes=one.used_bytes, total_bytes=total_bytes, why=why)

    def _unread(self, gpu: int, why: str | None) -> Reading:
        total_bytes = self._shown[gpu].total_bytes
        return Reading(gpu=gpu, used_bytes=None, total_bytes=total_bytes, why=why)


SOURCES: dict[str, Callable[[Order], MemorySource]] = {"nvml": Nvml, "dcgm": Dcgm}
