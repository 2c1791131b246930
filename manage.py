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
    except KeyboardInterrupt:
        sys.exit(130)
    except (OperationalError, ProgrammingError) as error:
        if "--traceback" in sys.argv:
            raise
        sys.exit(
            f"The database refused what the command asked for: {str(error).splitlines()[0]}\n"
            "If its tables are missing or old, run 'manage.py migrate'. If this is the wrong "
            "database, set DATABASE_URL. --traceback shows where in the code it happened."
        )


if __name__ == "__main__":
    main()
