"""What can be kept of text from outside, and YAML as Kubernetes reads it."""

from __future__ import annotations

import contextlib
import gc
import json
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgets.texts import MOST_VALUES, UnreadableText, is_storable, read_json, read_yaml

LAUGHS = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
)


@pytest.mark.parametrize(
    ("value", "want"),
    [
        pytest.param({"a": ["text", 1, 1.5, None, True]}, True, id="plain"),
        pytest.param({"a": [{"b": "x\0"}]}, False, id="NUL"),
        pytest.param({"x\0": 1}, False, id="NUL in a key"),
        pytest.param(["\ud83d"], False, id="half a surrogate pair"),
        pytest.param("\N{GRINNING FACE}", True, id="whole character"),
        pytest.param({"a": float("inf")}, False, id="infinity"),
        pytest.param({"a": float("nan")}, False, id="not a number"),
        pytest.param(10**400, True, id="long number"),
    ],
)
def test_what_can_be_kept(value, want):
    assert is_storable(value) is want


def test_what_cannot_be_kept_is_replaced_wherever_it_stands():
    told = {"a\0": ["x\0y", {"b": "\ud800"}, 7, None], "c": "\\u0000", "d": "\ud83d\ude00"}
    assert read_json(json.dumps(told)) == {
        "a\ufffd": ["x\ufffdy", {"b": "\ufffd"}, 7, None],
        "c": "\\u0000",
        "d": "\N{GRINNING FACE}",
    }


@given(st.recursive(
    st.none() | st.booleans() | st.text(st.characters()) | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda part: st.lists(part) | st.dictionaries(st.text(st.characters()), part),
))  # fmt: skip
def test_json_is_read_as_it_was_written_but_for_what_cannot_be_kept(value):
    text = json.dumps(value)
    read = read_json(text)
    assert is_storable(read)
    if is_storable(value):
        assert read == value


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"[" * 100_000, id="depth"),
        pytest.param(b'{"a":' * 100_000, id="depth of objects"),
        pytest.param(b'["\\u0000",' + b"[" * 100_000, id="depth behind a NUL"),
        pytest.param(b'"\xff"', id="no UTF-8"),
        pytest.param("\ud800", id="half a surrogate pair as it is"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"[1] [2]", id="two"),
    ],
)
def test_what_is_no_json_is_a_value_error(text):
    with pytest.raises(ValueError):
        read_json(text)
    assert gc.isenabled()


class Connection:
    """Others' garbage: it is in a cycle, and cleaning it up takes some room on the stack."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        self.close(300)

    def close(self, parts: int) -> None:
        if parts:
            self.close(parts - 1)


def test_what_others_leave_behind_is_cleaned_up_whole(monkeypatch):
    failed = list[object]()
    monkeypatch.setattr(sys, "unraisablehook", lambda fault: failed.append(fault.exc_value))
    before = gc.get_threshold()
    gc.set_threshold(700)  # as by default: the collector comes when the parser is so deep
    try:
        gc.collect()
        Connection()
        with pytest.raises(ValueError, match="nested too deeply"):
            read_json(b"[" * 100_000)
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert not failed


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a: {b: [1, 2.5, yes, null, x]}", {"a": {"b": [1, 2.5, True, None, "x"]}},
                     id="values"),
        pytest.param("since: 2024-01-01", {"since": "2024-01-01"}, id="a date is text"),
        pytest.param("{2: a, true: b, null: c, 1.5: d}",
                     {"2": "a", "true": "b", "null": "c", "1.5": "d"}, id="names are texts"),
        pytest.param("a: &x [1]\nb: *x", {"a": [1], "b": [1]}, id="alias"),
        pytest.param("{a: 1:30, b: 1:30.5, 2:5: c, d: 12:30:45}",
                     {"a": "1:30", "b": "1:30.5", "2:5": "c", "d": "12:30:45"}, id="base 60"),
        pytest.param("[0xffffffffffffffff, -0x8000000000000000]", [2**64 - 1, -(2**63)],
                     id="the largest integers"),
        pytest.param("", None, id="nothing"),
    ],
)  # fmt: skip
def test_yaml_is_read_as_json_has_it(text, want):
    assert read_yaml(text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a: [", "not YAML near line 1", id="unfinished"),
        pytest.param("a: 1\n\tb: 2", "not YAML near line 2", id="tab"),
        pytest.param("a: x\0", "not YAML", id="raw NUL"),
        pytest.param('a: "\\0"', "NUL", id="escaped NUL"),
        pytest.param("a: .inf", "beyond a float", id="infinity"),
        pytest.param("a: .nan", "beyond a float", id="not a number"),
        pytest.param("a: !!binary aGk=", "kind that JSON lacks (bytes)", id="bytes"),
        pytest.param("a: !!set {b}", "kind that JSON lacks (set)", id="set"),
        pytest.param("a: !!timestamp 2024-01-01", "kind that JSON lacks (date)", id="date"),
        pytest.param("a: !!python/name:os.system", "not YAML", id="code"),
        pytest.param("a: !!int x", "cannot be read", id="no number"),
        pytest.param("a: !!int ''", "cannot be read", id="nothing for a number"),
        pytest.param("a: !!int '-'", "cannot be read", id="a sign for a number"),
        pytest.param("a: !!int '_'", "cannot be read", id="a line for a number"),
        pytest.param("a: !!float ''", "cannot be read", id="nothing for a fraction"),
        pytest.param("a: !!bool maybe", "cannot be read", id="neither yes nor no"),
        pytest.param("a: !!timestamp soon", "cannot be read", id="no date"),
        pytest.param("a: !!int 1:30", "number of base 60", id="base 60"),
        pytest.param("a: !!float 1:30.5", "number of base 60", id="a fraction of base 60"),
        pytest.param("a: 0x1ffffffffffffffff", "more than 64 bits", id="65 bits"),
        pytest.param(f"a: 0x{'f' * 100_000}", "more than 64 bits", id="digits without end"),
        pytest.param("? [a, b]\n: c", "not YAML", id="list as a name"),
        pytest.param("a: &x [*x]", "nested too deeply", id="in itself"),
        pytest.param("[" * 5000, "nested too deeply", id="depth"),
        pytest.param("[" * 150 + "]" * 150, "nested too deeply", id="depth of values"),
        pytest.param(LAUGHS, f"more than {MOST_VALUES:,} values", id="aliases of aliases"),
    ],
)
def test_yaml_that_is_none_is_told_without_a_quote(text, want):
    with pytest.raises(UnreadableText) as told:
        read_yaml(text)
    assert want in str(told.value)


def test_yaml_tells_its_line_and_keeps_a_secret():
    with pytest.raises(UnreadableText) as told:
        read_yaml("kind: Config\ntoken: 'sha256~geheim\n")
    assert told.value.line == 3
    assert "geheim" not in str(told.value)


def merges(levels: int, width: int = 10) -> str:
    """A mapping that each level merges ``width`` times: a line each, ``width ** levels`` keys."""
    lines = ["a0: &a0 {x: 1}"]
    for level in range(1, levels + 1):
        named = ", ".join([f"*a{level - 1}"] * width)
        lines.append(f"a{level}: &a{level} {{<<: [{named}]}}")
    return "\n".join(lines)


def wide() -> str:
    keys = ", ".join(f"k{number}: 1" for number in range(9_000))
    return f"a: &a {{{keys}}}\nb: {{<<: [{', '.join(['*a'] * 40_000)}]}}"


@pytest.mark.parametrize(
    "text", [merges(7), merges(30), wide(), "a: &a {<<: *a}"], ids=["7", "30", "wide", "itself"]
)
def test_merge_keys_are_counted_before_they_are_copied(text: str):
    began = time.process_time()
    with pytest.raises(UnreadableText):
        read_yaml(text)
    assert time.process_time() - began < 10, "a thousandth of what copying them would take"


def test_merge_keys_merge():
    assert read_yaml("a: &a {x: 1, z: 1}\nb: {<<: *a, x: 2, y: 3}")["b"] == {"x": 2, "y": 3, "z": 1}
    assert read_yaml("a: &a {x: 1}\nb: &b {y: 2}\nc: {<<: [*a, *b]}")["c"] == {"x": 1, "y": 2}


@pytest.mark.parametrize("tag", ["", "!!int ", "!!float "])
def test_base_60_is_not_counted_out(tag: str):
    began = time.process_time()
    with contextlib.suppress(UnreadableText):
        read_yaml(f"a: {tag}{'1:' * 200_000}1")
    assert time.process_time() - began < 5, "counted out, it would take a minute"
