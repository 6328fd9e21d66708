"""Under CI=true a skipped test fails the session; elsewhere it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLAIN = "import pytest\n\n@pytest.mark.skip(reason='no gcc here')\ndef test_it(): ...\n"
MARKED = PLAIN.replace("@pytest.mark.skip", "@pytest.mark.gpu\n@pytest.mark.skip")
WHOLE_MODULE = "import pytest\npytest.skip('no gcc here', allow_module_level=True)\n"
RUN = "\ndef test_other(): ...\n"


def session(folder: Path, source: str, *, ci: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  gpu: a GPU\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "."],
        cwd=folder,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("source", [PLAIN, PLAIN + RUN, WHOLE_MODULE])
def test_a_skip_fails_the_session_in_ci(tmp_path: Path, source: str) -> None:
    done = session(tmp_path, source, ci="true")
    assert done.returncode == 1, done.stdout
    assert "no gcc here" in done.stdout


@pytest.mark.parametrize(
    ("source", "ci"), [(PLAIN + RUN, ""), (MARKED + RUN, "true"), (RUN, "true")]
)
def test_other_sessions_pass(tmp_path: Path, source: str, ci: str) -> None:
    done = session(tmp_path, source, ci=ci)
    assert done.returncode == 0, done.stdout
