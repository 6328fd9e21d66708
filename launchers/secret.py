"""Secrets, which stand in variables: told by the variable's name, never by what it holds."""

from __future__ import annotations

import os
import re

from profiles.sheet import RefusalError

# servers take a header of 8 KiB, and some no more; its name and scheme need a few of them
LONGEST_KEY_BYTES = 8000
_KEY = re.compile(r"[!-~](?:[ -~]*[!-~])?", re.ASCII)


def api_key(variable: str) -> str:
    """Return the API key that an environment variable holds, fit for an HTTP header.

    Raises RefusalError (a ValueError) if it is not set, empty, too long, or of characters that no header takes.
    """
    key = os.environ.get(variable)
    if not key:
        raise RefusalError(
            f"the variable {variable} is {'not set' if key is None else 'empty'}, and the API key is to come from it",
            f"export {variable}=... before you call tailgate",
        )
    if len(key) > LONGEST_KEY_BYTES:
        raise RefusalError(
            f"{variable} holds {len(key)} characters, more than the {LONGEST_KEY_BYTES} that a header takes",
            "put the key alone into it",
        )
    if _KEY.fullmatch(key) is None:
        raise RefusalError(
            f"{variable} holds {_odd(key)}, which no HTTP header takes in a key",
            "put the key alone into it, in printable ASCII and without a line's end",
        )
    return key


def _odd(key: str) -> str:
    """Say in words what is wrong with a key, without a character of it."""
    if "\n" in key or "\r" in key:
        return "the end of a line"
    if not key.isascii():
        return "a character beyond ASCII"
    if key.isprintable():
        return "a space at its start or end"
    return "a control character"
