"""A rehearsal in a process and database of its own, which ``manage.py rehearse`` starts."""

from __future__ import annotations

import json
import sys

import django
import structlog

log = structlog.stdlib.get_logger(__name__)


def main(text: str) -> int:
    """Run the rehearsal that ``text``, Options as JSON, asks for; settings name the database."""
    django.setup()
    # Models can be imported only from here on.
    from django.core.management import call_command

    from portal.rehearsal.report import Options, Report
    from portal.rehearsal.road import Rehearsal

    options = Options(**json.loads(text))
    report = Report(as_json=options.json)
    call_command("migrate", verbosity=0)
    try:
        Rehearsal(options, report).walk()
    except Exception as error:
        # Whatever a step raised is in the report, which names the step; nothing is hidden.
        log.debug("rehearsal_failed", error=type(error).__name__, exc_info=error)
        if not report.failed:
            report.failed = type(error).__name__
            report.notes.append(str(error))
    return report.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
