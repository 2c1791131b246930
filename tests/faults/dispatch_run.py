"""A seeded fault run of the portal's dispatch: a manager and two workers, judged by an onlooker.

``python -m tests.faults.dispatch_run --seed N --minutes M [--real]`` runs one by hand: on embedded
API servers, or on real ones. The seed is printed and brings the same jobs and faults again. Once
they are over, everything has to come to rest; then the whole history is judged. The report goes to
``artifacts/``; exit status 1 when a rule was broken.
"""

from __future__ import annotations

import argparse
import os
import sys

import django

from tests.faults.schedule import Size, schedule_of


def main(words: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.dispatch_run")
    parser.add_argument("--seed", type=int, help="another one each time, if not given")
    parser.add_argument("--minutes", type=float, default=1.0, help="of faults and arrivals")
    parser.add_argument("--real", action="store_true", help="on real API servers")
    given = parser.parse_args(words)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    # Models can be imported only from here on.
    from django.core.management import call_command

    from tests.faults.play import run

    if given.real:
        # The generated rights are read from rows, of which there are none.
        call_command("migrate", verbosity=0)

    seed = given.seed if given.seed is not None else int.from_bytes(os.urandom(3), "big")
    report = run(schedule_of(seed, Size(seconds=given.minutes * 60)), is_real=given.real)
    path = report.store()
    print(report.text())
    print(f"report in {path}")
    return 1 if report.broken else 0


if __name__ == "__main__":
    sys.exit(main())
