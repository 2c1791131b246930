"""Check a FOCUS file: every finding with row, column, value, rule and the way out."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections import Counter
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from budgets.exports.focus import Version
from budgets.exports.focus.check import check_file
from budgets.exports.focus.reading import FocusFileError, open_focus

FOUND, BAD_INPUT = 1, 2


class Command(BaseCommand):
    """``manage.py focus_check FILE --version 1.2|1.4``."""

    help = (
        "Check a FOCUS file of costs and usage (CSV, CSV.gz, Parquet or JSON Lines) against "
        "FOCUS 1.2 or 1.4 and the rules in docs/focus.md. Exit status 0: nothing is wrong; 1: "
        "there are findings; 2: the file cannot be read."
    )
    requires_system_checks: list[str] = []

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Django's own ``--version`` gives way to that of FOCUS."""
        kwargs["conflict_handler"] = "resolve"
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("file", type=Path, metavar="FILE", help="the file to check")
        parser.add_argument(
            "--version",
            dest="focus_version",
            required=True,
            choices=[version.value for version in Version],
            help="version of FOCUS that the file follows",
        )
        parser.add_argument(
            "--payable",
            action="append",
            default=[],
            type=_payable,
            metavar="INVOICE=AMOUNT",
            help="the amount that an invoice asks for; may be repeated",
        )

    def handle(
        self,
        *args: object,
        file: Path,
        focus_version: str,
        payable: list[tuple[str, Decimal]],
        **options: object,
    ) -> None:
        """Print the findings as they come, then a count by rule."""
        rules: Counter[str] = Counter()
        try:
            with open_focus(file) as opened:
                for finding in check_file(opened, Version(focus_version), payables=dict(payable)):
                    rules[finding.rule] += 1
                    self.stdout.write(str(finding))
        except FocusFileError as error:
            raise CommandError(str(error), returncode=BAD_INPUT) from error
        if not rules:
            self.stdout.write(f"{file}: nothing is wrong, by FOCUS {focus_version}")
            return
        for rule, count in sorted(rules.items()):
            self.stdout.write(f"{count:8} {rule}")
        self.stdout.write(f"{rules.total()} findings, by FOCUS {focus_version}")
        raise SystemExit(FOUND)


def _payable(text: str) -> tuple[str, Decimal]:
    invoice, separator, amount = text.rpartition("=")
    try:
        if separator and invoice:
            return invoice, Decimal(amount)
    except InvalidOperation:
        pass  # the error below says it
    raise ArgumentTypeError(
        f"{text!r} cannot be read; write INVOICE=AMOUNT, such as RE-2026-0001=120.50"
    )
