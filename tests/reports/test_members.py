from __future__ import annotations

import gzip
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports.fault import FormatError, WriteError
from reports.members import MemberReader, MemberWriter, compact


def write(path: Path, *flushes: list[int]) -> None:
    with MemberWriter(path, "requests", {"worker": "w", "lane": 0}) as writer:
        for numbers in flushes:
            writer.append(compact({"n": n}) for n in numbers)
            writer.flush()


def numbers(path: Path) -> tuple[list[int], int]:
    reader = MemberReader(path, "requests")
    found = [line["n"] for line in reader]
    return found, reader.torn


def test_header_comes_first_and_any_gzip_reader_reads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "w-0.jsonl.gz"
    write(path, [1, 2], [3])
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    assert json.loads(lines[0]) == {"format": 1, "kind": "requests", "worker": "w", "lane": 0}
    assert [json.loads(line)["n"] for line in lines[1:]] == [1, 2, 3]


def test_header_is_there_before_any_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.gz"
    writer = MemberWriter(path, "requests", {"lane": 3})
    reader = MemberReader(path, "requests")
    assert list(reader) == []
    assert reader.header["lane"] == 3
    writer.close()


def test_lone_surrogate_of_a_server_costs_no_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.gz"
    with MemberWriter(path, "requests", {}) as writer:
        writer.append([compact({"why": "caf\u00e9 \ud800\u2028"})])
    assert list(MemberReader(path, "requests")) == [{"why": "caf\u00e9 ?\u2028"}]


def test_flush_writes_one_member_and_nothing_when_nothing_waits(tmp_path: Path) -> None:
    path = tmp_path / "rows.gz"
    write(path, [1, 2], [], [3])
    assert path.read_bytes().count(bytes((0x1F, 0x8B, 8, 0, 0, 0, 0, 0))) == 3


def test_file_is_continued_under_its_header(tmp_path: Path) -> None:
    path = tmp_path / "rows.gz"
    write(path, [1])
    write(path, [2])
    assert numbers(path) == ([1, 2], 0)


@given(flushes=st.lists(st.lists(st.integers()), max_size=5))
@settings(max_examples=30)
def test_every_line_comes_back(flushes: list[list[int]], tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("members") / "rows.gz"
    write(path, *flushes)
    assert numbers(path) == ([n for flush in flushes for n in flush], 0)


def test_tail_torn_at_every_byte_costs_only_the_torn_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.gz"
    write(path, [1, 2], [3])
    before = path.stat().st_size
    write(path, list(range(100, 140)))
    whole = path.read_bytes()
    torn_path = tmp_path / "torn.gz"
    for size in range(before, len(whole)):
        torn_path.write_bytes(whole[:size])
        found, torn = numbers(torn_path)
        assert found[:3] == [1, 2, 3]
        assert found[3:] == list(range(100, 100 + len(found) - 3))
        assert torn == (0 if size == before else 1)


def test_header_torn_at_every_byte_is_never_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "rows.gz"
    write(path)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        found, torn = numbers(path)
        assert found == []
        assert torn == (0 if size == 0 else 1)


def test_member_written_after_a_torn_one_is_found(tmp_path: Path) -> None:
    path = tmp_path / "rows.gz"
    write(path, [1])
    before = path.stat().st_size
    write(path, list(range(2, 50)))
    whole = path.read_bytes()
    for size in range(before + 1, len(whole)):
        path.write_bytes(whole[:size])
        write(path, [777])
        found, torn = numbers(path)
        assert found[0] == 1
        assert found[-1] == 777
        assert torn == 1


def test_damaged_member_is_counted_and_its_neighbours_are_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.gz"
    write(path, [1])
    before = path.stat().st_size
    write(path, list(range(2, 50)))
    middle = path.stat().st_size
    write(path, [777])
    whole = bytearray(path.read_bytes())
    for at in range(before + 10, middle - 4):
        spoiled = bytearray(whole)
        spoiled[at] ^= 0xFF
        path.write_bytes(spoiled)
        found, torn = numbers(path)
        assert found[0] == 1
        assert found[-1] == 777
        assert torn >= 1


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ({"format": 2, "kind": "requests"}, "format 2, and this tailgate reads up to 1"),
        ({"format": 1, "kind": "memory"}, "no header of requests lines"),
        ({"kind": "requests"}, "no header of requests lines"),
        ({"format": True, "kind": "requests"}, "no header of requests lines"),
    ],
)
def test_other_kinds_and_newer_formats_are_refused(
    header: dict[str, object], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.gz"
    path.write_bytes(gzip.compress(compact(header) + b"\n"))
    with pytest.raises(FormatError, match=said) as caught:
        numbers(path)
    assert str(path) in str(caught.value)


def test_full_device_is_a_fault_that_names_the_mend() -> None:
    with pytest.raises(WriteError, match="No space left on device") as caught:
        MemberWriter(Path("/dev/full"), "requests", {})
    assert caught.value.lost == 1
    assert "--out" in str(caught.value)


FULL = """
import resource, sys
from pathlib import Path
from reports.members import MemberWriter, compact
from reports.fault import WriteError

path = Path(sys.argv[1])
writer = MemberWriter(path, "requests", {})
writer.append([compact({"n": 1})])
writer.flush()
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, hard))
writer.append([compact({"n": 2}), compact({"n": 3})])
for _ in range(2):
    try:
        writer.flush()
    except WriteError as fault:
        print(fault.lost, fault.fault)
print(path.stat().st_size)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
writer.close()
"""


def test_lines_refused_by_a_full_disk_wait_and_leave_no_half_member(tmp_path: Path) -> None:
    path = tmp_path / "rows.gz"
    write(path, [1])
    size = path.stat().st_size
    path.unlink()
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=True
    )
    said = done.stdout.splitlines()
    assert said[0] == said[1] == "2 2 lines could not be written: File too large"
    assert abs(int(said[2]) - size) < 40  # the header of write() is longer
    assert numbers(path) == ([1, 2, 3], 0)
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
