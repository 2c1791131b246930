"""Work the digests of closed months out again, and name the first row that is not as it was."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from budgets.services.billing import Anchor, verify_chain


class Command(BaseCommand):
    """Exit status 0 when every closed month is as it was closed, 1 at the first broken row."""

    help = (
        "Verify the hash chain over the hour facts and statements of closed months, and the seals "
        "over the audit log, prices, adjustments and numbered documents. Also check that no "
        "number is missing. Exit status 1 names the first row that was changed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """One month alone trusts the links of those before it."""
        parser.add_argument("--month", metavar="YYYY-MM", help="verify only this month")
        parser.add_argument(
            "--anchor",
            metavar="NUMBER:HEAD",
            type=_anchor,
            help="number and head of a closed month, from a statement or a mail: check that the "
            "ledger still has it unchanged",
        )
        parser.add_argument(
            "--seal",
            metavar="NUMBER:DIGEST",
            type=_anchor,
            help="number and digest of a seal, from a line of the log: check that the ledger still "
            "has it unchanged",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Verify and print one line."""
        found = verify_chain(name=options["month"], anchor=options["anchor"], seal=options["seal"])
        if found.broken is not None:
            raise CommandError(f"The ledger is not as it was closed: {found.broken}")
        if options["month"] and not found.periods:
            raise CommandError(f"No closed month is named {options['month']!r}. Write YYYY-MM.")
        self.stdout.write(
            self.style.SUCCESS(
                f"{found.periods} closed months, {found.blocks} blocks and {found.rows} rows "
                f"are as they were when they were closed, and {found.sealed} rows as they were "
                "when they were sealed."
            )
        )


def _anchor(text: str) -> Anchor:
    number, _, head = text.partition(":")
    if not number.isascii() or not number.isdecimal() or len(head) != 64:
        raise ArgumentTypeError(
            f"{text[:80]!r} is not NUMBER:HEAD; write it as 7:3f…, with all 64 digits of the head"
        )
    return Anchor(int(number), head.lower())
