"""A seeded fault run of the portal's dispatch: a manager and two workers, judged by an onlooker.

``python -m tests.faults.dispatch_run --seed N --minutes M [--real]`` runs one by hand: on embedded
API servers, or on real ones. The seed is printed and brings the same jobs and faults again. Once
they are over, everything has to come to rest; then the whole history is judged. The report goes to
``artifacts/``; exit status 1 when a rule was broken.
"""

from __future__ import annotations

import argparse
import sys

from tests.faults.report import add_options, begin, conclude
from tests.faults.schedule import Size, schedule_of


def main(words: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.dispatch_run")
    add_options(parser)
    parser.add_argument("--minutes", type=float, default=1.0, help="of faults and arrivals")
    given = parser.parse_args(words)
    seed = begin(given)
    from tests.faults.play import run

    report = run(schedule_of(seed, Size(seconds=given.minutes * 60)), is_real=given.real)
    return conclude(report)


if __name__ == "__main__":
    sys.exit(main())
