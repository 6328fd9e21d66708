"""``python -P -m tailgate``: the same door as the ``tailgate`` command."""

from __future__ import annotations

from tailgate.cli import main

if __name__ == "__main__":
    main()
