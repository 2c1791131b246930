"""Logs: an event of the code is a line with its name and its keys, whatever strangers wrote."""

from __future__ import annotations

import io
import json
import logging
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog

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
