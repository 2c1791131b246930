"""``manage.py usage_totals``: compare the totals of hour facts with the facts, or add them anew."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from budgets.services import count_wrong_totals, rebuild_totals


class Command(BaseCommand):
    """Changes nothing without ``--rebuild``; facts are never changed."""

    help = (
        "Compare the totals that the pages of usage read with the hour facts that they are sums "
        "of. Exits 1 when a row differs; --rebuild puts every row right. The meter waits."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The one choice."""
        parser.add_argument("--rebuild", action="store_true", help="put every row right")

    def handle(self, *args: Any, **options: Any) -> None:
        """Say how many rows differ, or differed."""
        if options["rebuild"]:
            self.stdout.write(f"{rebuild_totals()} rows of totals were put right.")
            return
        wrong = count_wrong_totals()
        if wrong:
            raise CommandError(
                f"{wrong} rows of totals are not the sum of their facts; "
                "manage.py usage_totals --rebuild puts them right.",
                returncode=1,
            )
        self.stdout.write("Every total is the sum of its facts.")
