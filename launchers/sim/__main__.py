"""``python -m launchers.sim``."""

from __future__ import annotations

from launchers.sim.command import main

if __name__ == "__main__":
    main()
