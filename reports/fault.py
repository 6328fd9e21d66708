"""What can go wrong with paper, drawn once.

PaperError            exit_code 2: the file or directory is not what it must be
├── UsageError        a directory that is not new, a name that does not exist, a pin that is refused
├── FormatError       a file that is damaged, of another kind, or newer than this tailgate
└── WriteError        exit_code 4: measured data could not be written; the run is INVALID
"""

from __future__ import annotations

import errno
from pathlib import Path


class PaperError(Exception):
    """A fault of a file or directory of ours: which one, what is wrong, and the mend."""

    exit_code = 2

    def __init__(self, path: Path, fault: str, mend: str) -> None:
        super().__init__(f"{path}: {fault}\n  mend: {mend}")
        self.path = path
        self.fault = fault
        self.mend = mend


class UsageError(PaperError):
    """The caller asked for something that cannot be: a used directory, an unknown name, a refused pin."""


class FormatError(PaperError):
    """A file is damaged, of another kind, unreadable, or written by a newer tailgate."""

    @classmethod
    def unreadable(cls, path: Path, cause: OSError) -> FormatError:
        """Return the fault of a file that cannot be read: a folder or a dangling link in its place, no permission."""
        return cls(
            path,
            f"it cannot be read: {cause.strerror}",
            "restore the file and its permissions, or measure again",
        )


class WriteError(PaperError):
    """Measured data could not be written (disk full, quota, lost mount): the run is INVALID.

    ``lost`` is the number of lines that are not on disk.
    """

    exit_code = 4

    def __init__(self, path: Path, cause: OSError, lost: int) -> None:
        mend = (
            "free space on this file system, or put the run elsewhere with --out"
            if cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            else "check that the directory exists, is writable and is still mounted"
        )
        super().__init__(path, f"{lost} lines could not be written: {cause.strerror}", mend)
        self.cause = cause
        self.lost = lost
