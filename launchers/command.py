"""What starts an engine, as a value: no process, no port and no secret is touched here."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

OptionValue = str | int | float | bool | None | Sequence[object] | Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class FromEnv:
    """A secret by the name of the variable that holds it; the value is looked up when a process starts."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file that must exist, with this text, before the command starts; arguments name it {files}/``name``."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program, its arguments, what it adds to the environment, and the files that it reads."""

    argv: tuple[str, ...]
    env: Mapping[str, str | FromEnv] = field(default_factory=dict)
    files: tuple[File, ...] = ()

    def with_files_in(self, folder: Path) -> Command:
        """Return the command with ``{files}`` replaced by the folder that holds its files.

        >>> Command(argv=("serve", "{files}/a.yaml"), files=(File(name="a.yaml", text=""),)).with_files_in(
        ...     Path("/run/engine")
        ... ).argv
        ('serve', '/run/engine/a.yaml')
        """
        if not self.files:
            return self
        argv = tuple(word.replace("{files}", str(folder)) for word in self.argv)
        return replace(self, argv=argv)

    def __str__(self) -> str:
        """The command as a shell would take it; secrets stay names.

        >>> print(Command(argv=("vllm", "serve", "a b"), env={"HF_TOKEN": FromEnv(name="MY_TOKEN")}))
        HF_TOKEN="$MY_TOKEN" vllm serve 'a b'
        """
        settings = (
            f'{name}="${value.name}"'
            if isinstance(value, FromEnv)
            else f"{name}={shlex.quote(value)}"
            for name, value in self.env.items()
        )
        return " ".join((*settings, shlex.join(self.argv)))


def flags(options: Mapping[str, OptionValue]) -> tuple[str, ...]:
    """Return raw options as arguments, in the order written.

    ``true`` is the bare flag, ``false`` its ``--no-`` form, a list several values after one flag, a mapping JSON.

    >>> flags({"dtype": "float32", "enforce-eager": True, "enable-prefix-caching": False})
    ('--dtype', 'float32', '--enforce-eager', '--no-enable-prefix-caching')
    >>> flags({"lora-modules": ["a=x", "b=y"], "kv-transfer-config": {"kv_role": "kv_both"}})
    ('--lora-modules', 'a=x', 'b=y', '--kv-transfer-config', '{"kv_role":"kv_both"}')
    """
    words: list[str] = []
    for name, value in options.items():
        if value is True or value is None:
            words.append(f"--{name}")
        elif value is False:
            words.append(f"--no-{name}")
        elif isinstance(value, Mapping):
            words += (f"--{name}", json.dumps(value, separators=(",", ":")))
        elif isinstance(value, str | int | float):
            words += (f"--{name}", str(value))
        else:
            words += (f"--{name}", *(str(item) for item in value))
    return tuple(words)
