"""The house as the decision records describe it: six rooms, arrows that only go down, everything shipped."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REPO = Path(__file__).parents[2]
ROOMS = ("tailgate", "loadgen", "profiles", "slas", "launchers", "reports")
PYPROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())


def run(*argv: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )


def packages(*roots: str) -> list[Path]:
    folders = [f for root in roots for f in (REPO / root, *sorted((REPO / root).rglob("*")))]
    return [folder for folder in folders if folder.is_dir() and any(folder.glob("*.py"))]


def named(path: Path) -> str:
    return str(path.relative_to(REPO))


@pytest.mark.parametrize("package", packages(*ROOMS), ids=named)
def test_a_package_opens_with_a_docstring_and_imports_nothing(package: Path) -> None:
    body = ast.parse((package / "__init__.py").read_text()).body
    assert len(body) == 1, f"{package}/__init__.py holds more than a docstring"
    assert isinstance(body[0], ast.Expr)
    assert isinstance(body[0].value, ast.Constant)
    assert isinstance(body[0].value.value, str)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_names_every_module_that_it_holds_and_is_typed(room: str) -> None:
    way_in = (REPO / room / "__init__.py").read_text()
    for path in sorted((REPO / room).iterdir()):
        if (path.suffix == ".py" or (path / "__init__.py").is_file()) and path.stem[0] != "_":
            assert re.search(rf"\b{path.stem}\b", way_in), (
                f"{room}/__init__.py does not name {path.name}"
            )
    assert (REPO / room / "py.typed").is_file()


def test_every_folder_of_tests_is_a_package() -> None:
    # Without one, pytest imports tests/profiles as `profiles`, over ours.
    for folder in (REPO / "tests", *(REPO / "tests").rglob("*")):
        if folder.is_dir() and any(folder.glob("*.py")):
            assert (folder / "__init__.py").is_file(), folder


def test_no_module_is_named_after_nothing() -> None:
    vague = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc", "core"}
    for package in packages(*ROOMS):
        found = vague & {path.stem for path in package.iterdir()}
        assert not found, f"{package}: {found}"


def test_a_forbidden_import_is_caught(tmp_path: Path) -> None:
    for room in ROOMS:
        shutil.copytree(REPO / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPO / "pyproject.toml", tmp_path)
    (tmp_path / "profiles" / "planted.py").write_text("import asyncio\nimport slas.evidence\n")
    (tmp_path / "loadgen" / "generator" / "planted.py").write_text("import gevent\n")
    (tmp_path / "loadgen" / "control" / "planted.py").write_text("import aiohttp\n")

    lint = Path(sys.executable).with_name("lint-imports")
    done = run(str(lint), "--no-cache", cwd=tmp_path, COLUMNS="200")

    assert done.returncode == 1, done.stdout + done.stderr
    for contract in PYPROJECT["tool"]["importlinter"]["contracts"]:
        assert f"{contract['name']} BROKEN" in re.sub(r"\s+", " ", done.stdout), done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    done = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out), cwd=REPO)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_all_that_git_tracks_in_the_rooms(wheel: Path) -> None:
    shipped = set(zipfile.ZipFile(wheel).namelist())
    listed = run("git", "ls-files", "--", *ROOMS, cwd=REPO)
    assert listed.returncode == 0, listed.stderr
    tracked = {name for name in listed.stdout.splitlines() if (REPO / name).exists()}
    assert tracked - shipped == set()
    assert {name for name in tracked if name.endswith((".yaml", ".j2", ".typed"))}


def test_the_wheel_works_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    site = {"PYTHONPATH": str(tmp_path / "site")}

    where = run(
        sys.executable,
        "-P",
        "-c",
        "import tailgate; print(tailgate.__file__)",
        cwd=tmp_path,
        **site,
    )
    assert where.stdout.startswith(str(tmp_path)), where.stdout + where.stderr
    version = run(sys.executable, "-P", "-m", "tailgate", "--version", cwd=tmp_path, **site)
    assert version.returncode == 0, version.stderr
    assert PYPROJECT["project"]["version"] in version.stdout
    catalogue = run(sys.executable, "-P", "-m", "tailgate", "catalogue", cwd=tmp_path, **site)
    assert catalogue.returncode == 0, catalogue.stderr
    for name in ("smoke", "bursty-multitenant", "interactive", "sim-static"):
        assert name in catalogue.stdout


def pins(name: str) -> dict[str, list[str]]:
    """Return the versions that a requirements file pins, by project."""
    text = (REPO / "requirements" / name).read_text()
    found: dict[str, list[str]] = {}
    for project, version in re.findall(r"(?m)^([A-Za-z0-9._-]+)==([^\s;\\]+)", text):
        found.setdefault(project.lower(), []).append(version)
    return found


@pytest.mark.parametrize("name", ["build.txt", "run.txt", "dev.txt"])
def test_requirements_are_hashed_and_name_no_index(name: str) -> None:
    text = (REPO / "requirements" / name).read_text()
    assert "://" not in text
    assert not re.search(r"(?m)^\s*--(?!hash=)", text)
    for block in re.split(r"\n(?=\S)", text.strip()):
        assert "--hash=sha256:" in block, block


def test_requirements_fit_the_project() -> None:
    run_pins, dev_pins = pins("run.txt"), pins("dev.txt")
    groups = {
        "run.txt": (run_pins, PYPROJECT["project"]["dependencies"]),
        "dev.txt": (dev_pins, PYPROJECT["dependency-groups"]["dev"]),
        "build.txt": (pins("build.txt"), PYPROJECT["build-system"]["requires"]),
    }
    for file, (pinned, wanted) in groups.items():
        for line in wanted:
            need = Requirement(line)
            versions = pinned.get(need.name.lower().replace("_", "-"), [])
            assert versions, f"{file} lacks {need.name}: make lock"
            assert all(need.specifier.contains(v) for v in versions), f"{file}: {line}: make lock"
    assert {name: dev_pins.get(name) for name in run_pins} == run_pins
