from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import Field

from profiles.sheet import (
    Duration,
    FieldPath,
    Money,
    Rate,
    RefusalError,
    Share,
    SheetError,
    Size,
    Strict,
    catalogue,
    field_name,
    find,
    json_schema,
    nearest,
    read,
)
from profiles.tree import DEEPEST, LARGEST_SHEET_BYTES, SHOWN_FAULTS


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class Part(Strict):
    count: int = Field(gt=0)
    colour: Colour = Colour.RED
    both: int | str = 0


class Whole(Strict):
    version: Literal[1]
    wait: Duration = Field(default="10s", validate_default=True)
    size: Size | None = None
    share: Share | None = None
    rate: Rate | None = None
    price: Money | None = None
    names: tuple[str, ...] = ()
    flag: bool = False
    ratio: float = 1.0
    parts: dict[Annotated[str, Field(pattern="^[a-z]+$")], Part] = Field(default_factory=dict)
    later = frozenset({"sessions"})


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "sheet.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def faults_of(tmp_path: Path, text: str | bytes) -> list[tuple[str, str, str]]:
    """Return (line:column, field, fault) of a sheet's faults."""
    path = write(tmp_path, text)
    with pytest.raises(SheetError) as caught:
        read(path, Whole)
    assert caught.value.exit_code == 2
    found = []
    for fault in caught.value.faults:
        assert fault.mend
        assert fault.spot.path == path
        found.append((f"{fault.spot.line}:{fault.spot.column}", fault.field, fault.fault))
    return found


def test_a_right_sheet_is_read_with_its_bytes_and_places(tmp_path: Path) -> None:
    text = (
        "version: 1\nwait: 250ms\nsize: 80GiB\nshare: 5%\nrate: 30/min\nprice: $0.12\n"
        "names: [a, 'on']\nflag: true\nratio: 3\nparts:\n  left: {count: 2, colour: green}\n"
    )
    sheet = read(write(tmp_path, text), Whole)
    assert sheet.data == text.encode()
    assert len(sheet.sha256) == 64
    value = sheet.value
    assert (value.wait, value.size, value.share, value.rate, value.price) == (
        *(250_000_000, 80 * 2**30, 0.05, 0.5, 0.12),
    )
    assert (value.names, value.flag, value.ratio) == (("a", "on"), True, 3.0)
    assert value.parts["left"] == Part(count=2, colour=Colour.GREEN)
    places = [
        (spot.line, spot.column)
        for spot in (
            sheet.spot("wait"),
            sheet.spot("names", 1),
            sheet.spot("parts"),
            sheet.spot("parts", "left"),
            sheet.spot("parts", "left", "colour"),
            sheet.spot("parts", "left", "nowhere"),
        )
    ]
    assert places == [(2, 7), (7, 12), (10, 1), (11, 3), (11, 28), (11, 3)]
    fault = sheet.fault(("parts", "left", "count"), "too few", "add one")
    assert str(fault) == f"{sheet.path}:11:17: parts.left.count: too few\n  mend: add one"


def test_every_fault_is_told_at_once_with_its_place(tmp_path: Path) -> None:
    text = """\
version: 2
wait: 10
names: [1, on, fine]
flag: yes
ratio: 1e3
parts:
  Left: {count: 0}
  right: {colour: gren, both: 1.5}
  right: {count: 1}
  up: {count: 1:30}
price: 5
wiat: 3s
sessions: {turns: 2}
"""
    assert faults_of(tmp_path, text) == [
        ("1:10", "version", "unknown value 2, expected 1"),
        ("2:7", "wait", "duration '10' has no unit"),
        ("3:9", "names[0]", "expected a text, got 1"),
        ("3:12", "names[1]", "'on' is a truth value to some YAML readers"),
        ("4:7", "flag", "'yes' is a truth value to some YAML readers"),
        ("5:8", "ratio", "'1e3' is a number to some YAML readers and a text to others"),
        ("7:3", "parts.Left", "'Left' does not match ^[a-z]+$"),
        ("7:17", "parts.Left.count", "must be more than 0, got 0"),
        ("8:3", "parts.right.count", "required and not given"),
        ("8:19", "parts.right.colour", "unknown value 'gren', expected 'red' or 'green'"),
        (
            "8:31",
            "parts.right.both",
            "expected a whole number, got 1.5; or expected a text, got 1.5",
        ),
        ("9:3", "parts.right", "duplicate key, first given in line 8"),
        ("10:15", "parts.up.count", "'1:30' is a number in base 60 to some YAML readers"),
        ("11:8", "price", "price '5' has no unit"),
        ("12:1", "wiat", "unknown key 'wiat'"),
        ("13:1", "sessions", "'sessions' is not yet supported"),
    ]


def test_mends_name_the_nearest_word(tmp_path: Path) -> None:
    path = write(tmp_path, "version: 1\nwiat: 3s\nparts: {a: {count: 1, colour: gren}}\n")
    with pytest.raises(SheetError) as caught:
        read(path, Whole)
    assert str(caught.value) == (
        f"{path}:2:1: wiat: unknown key 'wiat'\n  mend: did you mean 'wait'?\n"
        f"{path}:3:31: parts.a.colour: unknown value 'gren', expected 'red' or 'green'\n"
        "  mend: did you mean 'green'?"
    )


@pytest.mark.parametrize(
    "value",
    [
        *(
            "1:30",
            "1:30:00",
            "on",
            "off",
            "yes",
            "No",
            "ON",
            "y",
            "N",
            "TRUE",
            "False",
            "1e3",
            "1.5e3",
        ),
        *(
            "1e+3",
            "010",
            "08",
            "0x1F",
            "0o17",
            "0b1",
            "1_000",
            "+5",
            ".5",
            "5.",
            ".inf",
            "-.INF",
            ".nan",
        ),
        *("2026-11-30", "2026-11-30 17:41:05", "~", "null", "Null", "", "=", "!!str 5", "!x 5"),
        *("&a 5", "99999999999999999999", "0." + "1" * 30),
    ],
)
@pytest.mark.parametrize("key", ["names", "ratio", "flag", "wait"])
def test_what_yaml_would_turn_into_something_else_is_one_fault(
    tmp_path: Path, key: str, value: str
) -> None:
    item = f"{key}:\n- x\n- {value}\n" if key == "names" else f"{key}: {value}\n"
    found = faults_of(tmp_path, f"version: 1\n{item}")
    place = ("4", "names[1]") if key == "names" else ("2", key)
    assert [(at.partition(":")[0], name) for at, name, _ in found] == [place]


@pytest.mark.parametrize("key", ["on", "yes", "010", "1e3", "1:30", "true", "null", "2026-11-30"])
def test_a_key_that_yaml_would_turn_is_one_fault(tmp_path: Path, key: str) -> None:
    found = faults_of(tmp_path, f"version: 1\nparts:\n  {key}: {{count: 1}}\n")
    assert [(at, name) for at, name, _ in found] == [("3:3", f"parts.{key}")]


def test_quoted_texts_are_texts_and_nothing_else(tmp_path: Path) -> None:
    sheet = read(write(tmp_path, "version: 1\nnames: ['on', \"1e3\", '010', 'null', '~']\n"), Whole)
    assert sheet.value.names == ("on", "1e3", "010", "null", "~")
    assert faults_of(tmp_path, 'version: 1\nratio: "3"\nflag: "true"\n') == [
        ("2:8", "ratio", "expected a number, got '3'"),
        ("3:7", "flag", "expected true or false, got 'true'"),
    ]


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("", "1:1", "empty"),
        ("# only a comment\n", "1:1", "empty"),
        ("---\n", "2:1", "no value"),
        ("- 1\n", "1:1", "expected keys with values, got a list"),
        ("just words\n", "1:1", "expected keys with values, got 'just words'"),
        ("version: 1\n---\nversion: 1\n", "2:1", "second document"),
        ("version: 1\nparts:\n\tleft: 1\n", "3:1", "found character '\\t'"),
        ("version: 'x\n", "2:1", "unexpected end of stream"),
        ("version: [1\n", "2:1", "expected ',' or ']'"),
        ("version: 1\nwait: a: b\n", "2:8", "mapping values are not allowed"),
        ("version: *x\n", "1:10", "aliases are not read"),
        ('version: "\\UFFFFFFFF"\n', "1:13", "too large a number"),
        ("%YAML 1." + "9" * 5000 + "\n---\nversion: 1\n", "1:9", "too large a number"),
        ("version: 1\x07\n", "1:11", "control character"),
        (b"version: 1\nwait: \xff\n", "2:7", "not UTF-8"),
        (b"\xff\xfev\0e\0", "0:0", "binary data"),
        (b"\x7fELF\x02\x01\0\0", "0:0", "binary data"),
        ("[" * 200, f"1:{DEEPEST + 2}", "nested more than"),
        ("a: " * 3 + "1", "1:5", "mapping values are not allowed"),
        ("{a: " * 5000, f"1:{4 * DEEPEST + 5}", "nested more than"),
        (b"#" * (LARGEST_SHEET_BYTES + 1), "0:0", "larger than 256 KiB"),
    ],
)
def test_what_is_no_sheet_is_one_clear_fault(
    tmp_path: Path, text: str | bytes, at: str, said: str
) -> None:
    found = [fault for fault in faults_of(tmp_path, text) if "required" not in fault[2]]
    assert [(place, said in fault) for place, _, fault in found] == [(at, True)], found


def test_an_alias_bomb_is_refused_alias_by_alias_without_expanding(tmp_path: Path) -> None:
    lines = ["version: 1", "a: &a [x, x]"]
    lines += [f"{c}: &{c} [*{p}, *{p}]" for p, c in zip("abcdefgh", "bcdefghi", strict=True)]
    found = faults_of(tmp_path, "\n".join(lines))
    assert sum("aliases are not read" in fault for _, _, fault in found) == 16
    assert sum("anchors are not read" in fault for _, _, fault in found) == 9


def test_odd_keys_all_the_way_down_are_two_faults(tmp_path: Path) -> None:
    assert faults_of(tmp_path, "{" * 5000) == [
        ("1:2", "", "a key must be a word"),
        (f"1:{DEEPEST + 2}", "", f"nested more than {DEEPEST} deep"),
    ]


def test_merge_keys_and_odd_keys_are_refused(tmp_path: Path) -> None:
    text = "version: 1\n? [a, b]\n: c\nparts:\n  <<: {a: {count: 1}}\n  ? {x: y}\n  : 1\n"
    assert faults_of(tmp_path, text) == [
        ("2:3", "", "a key must be a word"),
        ("5:3", "parts.<<", "merge keys are not read"),
        ("6:5", "parts", "a key must be a word"),
    ]


def test_files_that_cannot_be_read_are_faults(tmp_path: Path) -> None:
    for path, said in (
        (tmp_path / "none.yaml", "no such file"),
        (tmp_path, "a directory"),
        (tmp_path / ("x" * 300), "cannot be read"),
        (Path("a\0b"), "cannot be read"),
    ):
        with pytest.raises(SheetError) as caught:
            read(path, Whole)
        (fault,) = caught.value.faults
        assert said in fault.fault
        assert str(caught.value).startswith(f"{path}: ")


def test_a_byte_order_mark_and_crlf_are_no_fault(tmp_path: Path) -> None:
    sheet = read(write(tmp_path, b"\xef\xbb\xbfversion: 1\r\nwait: 2s\r\n"), Whole)
    assert sheet.value.wait == 2_000_000_000


def test_what_goes_across_fields_is_told_together_with_the_rest(tmp_path: Path) -> None:
    def across(data: Any) -> Iterator[tuple[FieldPath, str, str]]:
        if "none" in data.get("names", ()):
            yield ("names", 1), "none is no name", "name one"

    path = write(tmp_path, "version: 3\nnames: [a, none]\n")
    with pytest.raises(SheetError) as caught:
        read(path, Whole, across=across)
    assert [(f.spot.line, f.spot.column, f.field) for f in caught.value.faults] == [
        (1, 10, "version"),
        (2, 12, "names[1]"),
    ]


def test_a_refusal_may_point_into_the_value(tmp_path: Path) -> None:
    class Pair(Strict):
        low: int
        high: int

        def model_post_init(self, context: object) -> None:
            if self.high < self.low:
                raise RefusalError("high is below low", "swap them", ("high",))

    class Holder(Strict):
        pair: Pair

    path = write(tmp_path, "pair: {low: 3, high: 1}\n")
    with pytest.raises(SheetError) as caught:
        read(path, Holder)
    assert str(caught.value) == f"{path}:1:22: pair.high: high is below low\n  mend: swap them"


def test_field_names_and_nearest() -> None:
    assert field_name(("tenants", "chat", "list", 3, "a\nb")) == r"tenants.chat.list[3].'a\nb'"
    assert nearest("zzz", ["a", "b"]) == "use one of a, b"
    assert nearest("gama", ["gamma", "poisson"]) == "did you mean 'gamma'?"


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300, deadline=None
)
@given(
    data=st.binary(max_size=80)
    | st.text(alphabet="av:- \n\t[]{},&*!|>'\"%#?1.e\x85", max_size=40).map(str.encode)
)
def test_no_bytes_whatsoever_escape_as_anything_but_faults(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path, data)
    said = "read"
    try:
        read(path, Whole)
    except SheetError as error:
        said = str(error)
    assert said.encode()


def test_find_means_a_path_or_a_catalogue_name() -> None:
    assert find("./x.yaml", "profiles") == Path("x.yaml")
    assert find("some.yml", "profiles") == Path("some.yml")
    assert find("smoke", "profiles").name == "smoke.yaml"
    with pytest.raises(SheetError) as caught:
        find("smok", "profiles")
    assert str(caught.value) == (
        "smok: no sheet of this name in the catalogue of profiles\n"
        "  mend: did you mean 'smoke'? (a file of your own: ./smok.yaml)"
    )


def test_the_catalogue_has_a_line_for_each_sheet() -> None:
    lines = catalogue("profiles")
    assert {"smoke", "bursty-multitenant", "azure-like-chat", "azure-like-code"} <= set(lines)
    assert all(len(line) > 20 and not line.startswith("#") for line in lines.values())


def test_the_json_schema_asks_for_units_and_knows_no_null() -> None:
    schema = json_schema(Whole)
    jsonschema.Draft202012Validator.check_schema(schema)
    check = jsonschema.Draft202012Validator(schema)
    assert check.is_valid({"version": 1, "wait": "250ms", "size": "80GiB"})
    for wrong in (
        {"wait": 250},
        {"wait": "250"},
        {"size": None},
        {"colour": "red"},
        {"flag": "on"},
    ):
        assert not check.is_valid({"version": 1, **wrong}), wrong
    assert schema["properties"]["wait"]["default"] == "10s"
    assert not re.search(r'"null"|None', str(schema))


def test_a_nul_that_an_escape_wrote_is_told_where_it_stands(tmp_path: Path) -> None:
    text = 'version: 1\nnames: ["a\\0b"]\n"fl\\0ag": true\n'
    assert faults_of(tmp_path, text) == [
        ("2:9", "names[0]", "a NUL character stands for nothing in a sheet"),
        ("3:1", "'fl\\x00ag'", "a NUL character stands for nothing in a sheet"),
    ]


def test_of_thousands_of_faults_the_first_are_put_into_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: list[str] = []

    def nearest_counted(word: str, known: Iterable[str]) -> str:
        words.append(word)
        return nearest(word, known)

    monkeypatch.setattr("profiles.sheet.nearest", nearest_counted)
    text = "version: 1\n" + "".join(f"key{i}: 1\n" for i in range(2000))
    with pytest.raises(SheetError) as caught:
        read(write(tmp_path, text), Whole)
    assert len(words) == SHOWN_FAULTS
    assert len(caught.value.faults) + caught.value.more == 2000
    assert str(caught.value).endswith(f"\nand {2000 - SHOWN_FAULTS} more faults")
