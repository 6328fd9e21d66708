"""The embedded simulator: an engine for machines without a GPU, and a test double."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from launchers.command import Command, flags
from launchers.objection import Objection
from launchers.sim.preset import PRESETS
from profiles.sheet import nearest

if TYPE_CHECKING:
    from launchers.spec import EngineSpec


class Sim:
    """Starts ``python -m launchers.sim``; ``preset`` names its behaviour, ``options`` are its flags."""

    keys: ClassVar[frozenset[str]] = frozenset({"preset", "options"})
    started: ClassVar[bool] = True
    simulated: ClassVar[bool] = True
    health: ClassVar[bool] = True
    memory: ClassVar[str] = "dcgm"
    dcgm_path: ClassVar[str | None] = "/dcgm/metrics"

    @staticmethod
    def objections(spec: EngineSpec) -> Iterator[Objection]:
        """Yield a fault if no preset is named, or one that the simulator does not have."""
        if spec.preset is None:
            yield Objection(
                field=("preset",),
                fault="a sim engine needs a preset",
                mend=f"write preset: with one of {', '.join(PRESETS)}",
            )
        elif spec.preset not in PRESETS:
            yield Objection(
                field=("preset",),
                fault=f"the simulator has no preset {spec.preset!r}",
                mend=nearest(spec.preset, PRESETS),
            )
        if spec.gpus == 0:
            yield Objection(
                field=("gpus",), fault="the simulator simulates GPUs", mend="write gpus: 1 or more"
            )

    @staticmethod
    def command(spec: EngineSpec, port: int) -> Command:
        """Return the simulator on this interpreter."""
        argv = [
            *(sys.executable, "-P", "-m", "launchers.sim"),
            *("--host", "127.0.0.1", "--port", str(port)),
            *("--served-model-name", spec.served_as),
            *("--preset", str(spec.preset), "--gpus", str(spec.gpus)),
            *flags(spec.options),
        ]
        return Command(argv=tuple(argv), env=spec.env)
