"""``manage.py usage_totals``: compare the totals of hour facts with the facts, or add them anew."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from budgets.services import count_wrong_totals, rebuild_totals


class Command(BaseCommand):
    """Changes nothing without ``--rebuild``; facts are never changed."""

    help = (
        "Compare the totals behind the usage pages with the hour facts that they add up. Exit "
        "status 1: a total differs; --rebuild corrects it. The meter waits meanwhile."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The one choice."""
        parser.add_argument("--rebuild", action="store_true", help="correct every wrong total")

    def handle(self, *args: Any, **options: Any) -> None:
        """Say how many rows differ, or differed."""
        if options["rebuild"]:
            self.stdout.write(f"{rebuild_totals()} rows of totals were corrected.")
            return
        wrong = count_wrong_totals()
        if wrong:
            raise CommandError(
                f"{wrong} rows of totals are not the sum of their hour facts. "
                "Run manage.py usage_totals --rebuild to correct them.",
                returncode=1,
            )
        self.stdout.write("Every total is the sum of its hour facts.")
