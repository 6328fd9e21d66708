"""``tailgate`` and ``python -P -m tailgate``: the door, guarded while its own modules are still being read."""

from __future__ import annotations

import sys

from tailgate.exits import Exit


def main() -> None:
    """Open the command line; Ctrl-C before it is there ends as any other Ctrl-C does."""
    try:
        from tailgate import cli
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)
    cli.main()


if __name__ == "__main__":
    main()
