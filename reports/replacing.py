"""Files that are replaced whole: a reader sees the old bytes or the new ones, never a part."""

from __future__ import annotations

import os
from pathlib import Path

from reports.fault import WriteError


def write_atomic(path: Path, data: bytes) -> None:
    """Replace the file at path by a temporary one beside it, flushed to the disk.

    Raises WriteError if it cannot be written; the old file then stands.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        sync(path.parent)
    except OSError as cause:
        raise WriteError(path, cause, lost=data.count(b"\n")) from cause


def sync(path: Path) -> None:
    """Bring a file or directory to the disk. Raises WriteError if that fails."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as cause:
        raise WriteError(path, cause, lost=0) from cause
