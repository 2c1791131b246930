"""Logs: an event of the code is a line with its name and its keys, whatever strangers wrote."""

from __future__ import annotations

import ast
import io
import json
import logging
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeGuard

import pytest
import structlog

from portal.floods import MOST, MOST_TOLD, WINDOW_S
from portal.logs import FORMATS, LONGEST_VALUE, formatter, logging_settings


@contextmanager
def lines(form: str) -> Iterator[tuple[logging.Logger, io.StringIO]]:
    """A logger of the standard library and what it writes."""
    text, logger = io.StringIO(), logging.getLogger("tests.lines")
    handler = logging.StreamHandler(text)
    handler.setFormatter(formatter(form=form))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield logger, text
    finally:
        logger.removeHandler(handler)


def read(line: str, form: str) -> dict[str, str]:
    if form == "json":
        return {key: str(value) for key, value in json.loads(line).items()}
    return dict(item.split("=", 1) for item in shlex.split(line))


@pytest.mark.parametrize("form", FORMATS)
def test_a_line_has_the_event_and_its_keys(form: str) -> None:
    with lines(form) as (_, text):
        structlog.stdlib.get_logger("tests.lines").info(
            "budget.applied", workspace="acme-vision", generation=7, took_s=0.5, reason=None
        )
    found = read(text.getvalue(), form)
    assert found["event"] == "budget.applied"
    assert found["workspace"] == "acme-vision"
    assert (found["generation"], found["took_s"]) == ("7", "0.5")
    assert (found["level"], found["logger"]) == ("info", "tests.lines")
    assert found["at"].endswith("Z")
    assert "reason" in found


@pytest.mark.parametrize("form", FORMATS)
def test_a_line_of_a_library_has_the_same_shape(form: str) -> None:
    with lines(form) as (logger, text):
        logger.warning("Not Found: %s", "/x y", extra={"status_code": 404})
    found = read(text.getvalue(), form)
    assert found["event"] == "Not Found: /x y"
    assert found["status_code"] == "404"
    assert found["level"] == "warning"


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param("a\nat=2026-01-01 level=info event=month_closed", id="line feed"),
        pytest.param("a\r\nevent=month_closed", id="carriage return"),
        pytest.param("a\u2028event=month_closed", id="line separator"),
        pytest.param("\x1b[2Kgone", id="escape sequence"),
        pytest.param('" event="month_closed', id="quotation mark"),
        pytest.param("a\x00b\x85c", id="control characters"),
    ],
)
def test_what_strangers_wrote_forges_no_line(form: str, hostile: str) -> None:
    with lines(form) as (logger, text):
        structlog.stdlib.get_logger("tests.lines").info("key_parked", message=hostile)
        logger.info(hostile)
    written = text.getvalue()
    assert len(written.splitlines()) == 2
    assert "\x1b" not in written
    assert read(written.splitlines()[0], form)["event"] == "key_parked"


def test_a_value_without_end_is_cut() -> None:
    with lines("logfmt") as (_, text):
        structlog.stdlib.get_logger("tests.lines").info("key_parked", message="x" * 1_000_000)
    assert len(text.getvalue()) < LONGEST_VALUE + 200


def test_what_was_raised_stands_below_its_line_set_in() -> None:
    with lines("logfmt") as (logger, text):
        try:
            raise ValueError("first\nevent=forged")
        except ValueError:
            logger.exception("turn_failed")
    first, *rest = text.getvalue().splitlines()
    assert "event=turn_failed" in first
    assert rest and all(line.startswith("  ") for line in rest)


def test_an_unknown_form_is_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match="PORTAL_LOG_FORMAT is 'xml'; it may be logfmt or json"):
        logging_settings(level="INFO", form="xml")


ROOT = Path(__file__).resolve().parent.parent
LEVELS = ("debug", "info", "warning", "error", "exception")
# What logging itself understands; no keys of the event.
ITS_OWN = {"exc_info", "stack_info"}


def events() -> Iterator[tuple[str, ast.Call]]:
    """Every call of a logger in the product, with where it stands."""
    for package in ("portal", "budgets", "clusters"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if _is_event(node):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def _is_event(node: ast.AST) -> TypeGuard[ast.Call]:
    function = node.func if isinstance(node, ast.Call) else None
    if not isinstance(function, ast.Attribute) or function.attr not in (*LEVELS, "log"):
        return False
    return isinstance(function.value, ast.Name) and function.value.id in {"log", "logger"}


def test_every_event_of_the_code_has_a_name_and_its_keys_in_the_line() -> None:
    found = list(events())
    assert len(found) > 60
    for place, call in found:
        # `log.log(level, event)` names the level first.
        event = call.args[-1]
        assert isinstance(event, ast.Constant) and isinstance(event.value, str), place
        assert re.fullmatch(r"[a-z_]+(\.[a-z_]+)?", event.value), f"{place}: {event.value!r}"
        keys = [word.arg for word in call.keywords if word.arg not in ITS_OWN]
        is_told = bool(keys) or call.func.attr == "exception"  # what was raised stands below it
        assert is_told and None not in keys and "extra" not in keys, f"{place}: no keys"
        with lines("logfmt") as (_, text):
            values = {key: f"value of {key}" for key in keys if key}
            structlog.stdlib.get_logger("tests.lines").info(event.value, **values)
        line = read(text.getvalue(), "logfmt")
        assert line["event"] == event.value, place
        assert {key: line[key] for key in values} == values, place


def test_the_product_logs_in_one_way() -> None:
    """Who asks for a logger of the standard library logs prose."""
    found = [
        path
        for package in ("portal", "budgets", "clusters")
        for path in (ROOT / package).rglob("*.py")
        if "getLogger(__name__)" in path.read_text()
    ]
    assert found == []


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("status", "is_told"), [(400, False), (404, False), (413, False), (500, True), (None, True)]
)
def test_only_a_fault_of_the_portal_has_a_traceback(
    form: str, status: int | None, is_told: bool
) -> None:
    with lines(form) as (logger, text):
        try:
            raise ValueError("what a stranger sent")
        except ValueError as error:
            extra = {} if status is None else {"status_code": status}
            logger.error("Bad Request: /x", exc_info=error, extra=extra)
    assert ("Traceback" in text.getvalue()) is is_told


def test_one_cluster_does_not_fill_the_log() -> None:
    """As Django sets it up: so many lines a minute of a kind and cluster, then one that counts."""
    text, now = io.StringIO(), [0.0]
    settings = logging_settings(level="DEBUG", form="json")
    [name] = settings["handlers"]["stderr"]["filters"]
    flood = settings["filters"][name]["()"](monotonic=lambda: now[0])
    handler = logging.StreamHandler(text)
    handler.setFormatter(formatter(form="json"))
    handler.addFilter(flood)
    told = structlog.stdlib.get_logger("tests.flood")
    root = logging.getLogger()
    before = root.level, root.handlers

    def lines() -> list[str]:
        """Threads of other tests log here, too."""
        ours = '"tests.flood"', '"portal.floods"'
        return [line for line in text.getvalue().splitlines() if any(name in line for name in ours)]

    # The process has such a filter already, whose minute ends on a busy machine meanwhile.
    root.handlers = [handler]
    root.setLevel(logging.DEBUG)
    try:
        for number in range(10_000):
            told.warning("write_failed", cluster="hostile", key=f"Job a/{number}")
            told.info("key_unparked", cluster="hostile", key=f"Job a/{number}")
        told.warning("write_failed", cluster="sound", key="Job a/1")
        told.error("shift_process_died", place="hostile/usage")
        told.warning("no_cluster")
        in_the_minute = lines()
        now[0] = WINDOW_S
        told.info("of_any_kind")
        for _ in range(MOST):
            told.warning("write_failed", cluster="hostile")
    finally:
        root.setLevel(before[0])
        root.handlers = before[1]
    assert len(in_the_minute) == MOST + MOST_TOLD + 3
    later = [json.loads(line) for line in lines()[len(in_the_minute) :]]
    found = {(row["of"], row["cluster"], row["count"]) for row in later if "of" in row}
    assert found == {
        ("write_failed", "hostile", 10_000 - MOST),
        ("key_unparked", "hostile", 10_000 - MOST_TOLD),
    }
    assert len(later) == 2 + 1 + MOST, "a new minute"
