"""How logs look: one line an event, a name and its keys, as logfmt or as JSON.

The code logs by ``structlog.stdlib.get_logger(__name__)``; lines of libraries get the same shape.
What strangers wrote, such as a message of a cluster, can neither end a line nor colour it.
"""

from __future__ import annotations

import logging
from textwrap import indent
from typing import Any, Final

import structlog
from structlog.typing import EventDict, WrappedLogger

from portal.floods import Flood

FORMATS: Final = ("logfmt", "json")
LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
# A message of a cluster may be long; what stands first in it tells what it is about.
LONGEST_VALUE: Final = 2_000
_logfmt = structlog.processors.LogfmtRenderer(
    key_order=["at", "level", "logger", "event"], bool_as_flag=False
)


def logging_settings(*, level: str, form: str) -> dict[str, Any]:
    """Django's LOGGING, and structlog set up to go with it.

    Args:
        level: The least level that is written.
        form: One of ``FORMATS``.

    Raises:
        ValueError: no such form.
    """
    if form not in FORMATS:
        raise ValueError(f"PORTAL_LOG_FORMAT is {form!r}; it may be {' or '.join(FORMATS)}")
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": formatter, "form": form}},
        "filters": {"flood": {"()": Flood}},
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "line",
                "filters": ["flood"],
            }
        },
        "root": {"handlers": ["stderr"], "level": level},
    }


def formatter(*, form: str = "logfmt") -> logging.Formatter:
    """Makes lines out of records, of the portal's and of any library's."""
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.ExtraAdder(), _said_once, _refused_without_traceback],
        processors=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            structlog.processors.format_exc_info,
            _harmless,
            _line if form == "logfmt" else structlog.processors.JSONRenderer(default=str),
        ],
    )


def _said_once(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Without what a library says twice: the text that another handler's formatter left in its
    record, and the task's whole result that Celery adds to a sentence about it.
    """
    event.pop("message", None)
    event.pop("data", None)
    return event


def _refused_without_traceback(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """A request that nobody could read is its sender's fault: no traceback of ours explains it."""
    if 400 <= int(event.get("status_code") or 0) < 500:
        event.pop("exc_info", None)
    return event


def _harmless(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Texts without what a terminal or a reader of lines would take for more than text."""
    for key, value in event.items():
        if key != "exception" and not isinstance(value, int | float | None):
            text = str(value)[:LONGEST_VALUE]
            event[key] = "".join(c if c.isprintable() else _escaped(c) for c in text)
    return event


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _line(logger: WrappedLogger, name: str, event: EventDict) -> str:
    """Logfmt; what was raised stands below, set in, as no event ever does."""
    raised = event.pop("exception", "")
    line = str(_logfmt(logger, name, event))
    return f"{line}\n{indent(raised, '  ')}" if raised else line
