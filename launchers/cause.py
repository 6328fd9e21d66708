"""What an engine's last words mean: the causes that operators meet most, and the mend of each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A known reason for which engines fail to start, and what helps."""

    name: str
    pattern: re.Pattern[str]
    mend: str


def _cause(name: str, pattern: str, mend: str) -> Cause:
    return Cause(name=name, pattern=re.compile(pattern, re.IGNORECASE), mend=mend)


PORT_IN_USE = "the port is in use"

# the first that matches wins: the specific before the general
CAUSES: tuple[Cause, ...] = (
    _cause(
        "other processes hold the GPU's memory",
        r"free memory on device .* is less than desired GPU memory utilization",
        "end what else uses the GPU (nvidia-smi lists it), or lower memory: {gpu_fraction: ...}",
    ),
    _cause(
        "the KV cache is smaller than one request of full length",
        r"estimated maximum model length is|is larger than the available KV cache memory",
        "lower limits: {context: ...}, or raise memory: {gpu_fraction: ...}",
    ),
    _cause(
        "no memory is left for the KV cache",
        r"no available memory for the cache blocks",
        "raise memory: {gpu_fraction: ...}, split the model over more GPUs, or lower limits:",
    ),
    _cause(
        "the GPU is out of memory",
        r"OutOfMemoryError|CUDA out of memory|CUDA error: out of memory",
        "lower memory: {gpu_fraction: ...} or limits:, or split the model over more GPUs",
    ),
    _cause(
        "the host is out of memory",
        r"\bMemoryError\b|cannot allocate memory|std::bad_alloc",
        "give the host more memory, or the engine less to keep there",
    ),
    _cause(
        PORT_IN_USE,
        r"address already in use|errno 98|EADDRINUSE|failed to bind socket",
        "end what listens there, or leave port: out so that a free one is picked",
    ),
    _cause(
        "the model is gated and the token does not open it",
        r"GatedRepoError|access to model .* is restricted|\b401 client error|\b403 client error",
        "accept the model's terms and give a token: env: {HF_TOKEN: {from_env: HF_TOKEN}}",
    ),
    _cause(
        "the model was not found",
        r"RepositoryNotFoundError|is not a local folder and is not a valid model|\b404 client error"
        r"|Repo id must be in the form|no such file or directory: .*config\.json"
        r"|LocalEntryNotFoundError|OfflineModeIsEnabled|does not appear to have a file named",
        "check model: (a folder on this machine, or a name that its hub knows)",
    ),
    _cause(
        "a flag is not known to this version",
        r"unrecognized arguments|no such option|invalid choice:|expected one argument",
        "check options: against the engine's --help",
    ),
    _cause(
        "there is no GPU that it can use",
        r"no GPU devices found|no CUDA GPUs are available|NVML Shared Library Not Found"
        r"|found no NVIDIA driver|failed to infer device type",
        "check nvidia-smi and CUDA_VISIBLE_DEVICES on the engine's machine",
    ),
    _cause(
        "VLLM_PORT holds an address, as Kubernetes writes it for a service called vllm",
        r"VLLM_PORT .* appears to be a URI",
        'write env: {VLLM_PORT: "20000"}, or rename the service',
    ),
    _cause(
        "a Python module is missing or does not fit",
        r"ModuleNotFoundError|ImportError|undefined symbol",
        "repair the engine's own environment; executable: names the one to use",
    ),
    _cause(
        "its program was not found or may not be run",
        r": (?:no such file or directory|permission denied|exec format error)$",
        "check the program's path and mode",
    ),
)


def recognise(log_tail: Iterable[str]) -> Cause | None:
    """Return the known cause that the log's last lines speak of, if any.

    >>> recognise(["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"]).name
    'the GPU is out of memory'
    """
    lines = tuple(log_tail)
    for cause in CAUSES:
        if any(cause.pattern.search(line) for line in lines):
            return cause
    return None
