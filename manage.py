#!/usr/bin/env python
"""Command line of the portal."""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    from django.core.management import execute_from_command_line
    from django.db import OperationalError, ProgrammingError

    try:
        execute_from_command_line(sys.argv)
    except (OperationalError, ProgrammingError) as error:
        if "--traceback" in sys.argv:
            raise
        sys.exit(
            f"The database did not do what the command asked: {str(error).splitlines()[0]}\n"
            "If its tables are missing or old, run 'manage.py migrate'. If it is another database, "
            "set DATABASE_URL. --traceback shows where it happened."
        )


if __name__ == "__main__":
    main()
