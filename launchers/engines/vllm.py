"""vLLM, started as ``vllm serve`` in its own environment; never imported.

The flags exist under these names from 0.11 to 0.33, so one mapping serves all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from launchers.command import Command, flags
from launchers.objection import Objection

if TYPE_CHECKING:
    from launchers.spec import EngineSpec

GIB = 1 << 30
SCHEDULING = ("fcfs", "priority")


class Vllm:
    """Maps the sheet's vocabulary to vLLM's flags; what the sheet leaves out is left to vLLM's own default."""

    keys: ClassVar[frozenset[str]] = frozenset(
        {"executable", "parallel", "memory", "limits", "features", "options"}
    )
    started: ClassVar[bool] = True
    simulated: ClassVar[bool] = False
    health: ClassVar[bool] = True
    memory: ClassVar[str] = "nvml"
    dcgm_path: ClassVar[str | None] = None

    @staticmethod
    def objections(spec: EngineSpec) -> Iterator[Objection]:
        """Yield what vLLM could not start with."""
        parallel = spec.parallel
        product = parallel.tensor * parallel.pipeline * parallel.data
        if spec.gpus not in (0, product):
            yield Objection(
                field=("gpus",),
                fault=f"{spec.gpus} GPUs, but tensor {parallel.tensor} × pipeline "
                f"{parallel.pipeline} × data {parallel.data} is {product}",
                mend=f"write gpus: {product}, or parallel: {{tensor: {spec.gpus}}}",
            )
        if spec.features.scheduling not in (None, *SCHEDULING):
            yield Objection(
                field=("features", "scheduling"),
                fault=f"vLLM has no scheduling policy {spec.features.scheduling!r}",
                mend=f"write {' or '.join(SCHEDULING)}",
            )
        ours = {word.lstrip("-").removeprefix("no-") for word in _vocabulary(spec, 0)}
        for name in spec.options:
            if name.replace("_", "-").removeprefix("no-") in ours:
                yield Objection(
                    field=("options", name),
                    fault=f"tailgate sets --{name} itself, from another field of this sheet",
                    mend="remove it here; port, served_as, parallel, memory, limits and features set it",
                )

    @staticmethod
    def command(spec: EngineSpec, port: int) -> Command:
        """Return ``vllm serve MODEL`` with the flags that the sheet asks for, raw options last."""
        argv = (
            *(spec.executable or "vllm", "serve", spec.model),
            *_vocabulary(spec, port),
            *flags(spec.options),
        )
        return Command(argv=argv, env=spec.env)


def _vocabulary(spec: EngineSpec, port: int) -> tuple[str, ...]:
    parallel, memory, limits, features = spec.parallel, spec.memory, spec.limits, spec.features
    words = ["--served-model-name", spec.served_as, "--host", "127.0.0.1", "--port", str(port)]
    for flag, size in (
        ("--tensor-parallel-size", parallel.tensor),
        ("--pipeline-parallel-size", parallel.pipeline),
        ("--data-parallel-size", parallel.data),
    ):
        if size != 1:
            words += (flag, str(size))
    for flag, value in (
        ("--gpu-memory-utilization", memory.gpu_fraction),
        ("--kv-cache-dtype", memory.kv_dtype),
        ("--kv-offloading-size", memory.offload_bytes / GIB if memory.offload_bytes else None),
        ("--max-model-len", limits.context),
        ("--max-num-seqs", limits.sequences),
        ("--max-num-batched-tokens", limits.batched_tokens),
        ("--scheduling-policy", features.scheduling),
    ):
        if value is not None:
            words += (flag, f"{value:g}" if isinstance(value, float) else str(value))
    for name, switch in (
        ("enable-prefix-caching", features.prefix_cache),
        ("enable-chunked-prefill", features.chunked_prefill),
    ):
        if switch is not None:
            words.append(f"--{name}" if switch else f"--no-{name}")
    return tuple(words)
