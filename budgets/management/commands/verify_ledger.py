"""Work the digests of closed months out again, and name the first row that is not as it was."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from budgets.services.billing import Anchor, verify_chain


class Command(BaseCommand):
    """Exit status 0 when every closed month is as it was closed, 1 at the first broken row."""

    help = (
        "Verify the hash chain over the hour facts and statements of closed months, the seals over "
        "the audit log, prices, adjustments and numbers, and that numbers have no holes."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """One month alone trusts the links of those before it."""
        parser.add_argument("--month", metavar="YYYY-MM", help="only months of this name")
        parser.add_argument(
            "--anchor",
            metavar="NUMBER:HEAD",
            type=_anchor,
            help="a closed month as a statement or a mail told it: it has to be there, as it was",
        )
        parser.add_argument(
            "--seal",
            metavar="NUMBER:DIGEST",
            type=_anchor,
            help="a seal as a line of the log told it: it has to be there, as it was",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Verify and print one line."""
        found = verify_chain(name=options["month"], anchor=options["anchor"], seal=options["seal"])
        if found.broken is not None:
            raise CommandError(f"broken: {found.broken}")
        self.stdout.write(
            self.style.SUCCESS(
                f"{found.periods} closed months, {found.blocks} blocks and {found.rows} rows "
                f"are as they were closed, {found.sealed} rows as they were sealed."
            )
        )


def _anchor(text: str) -> Anchor:
    number, _, head = text.partition(":")
    if not number.isascii() or not number.isdecimal() or len(head) != 64:
        raise ArgumentTypeError(f"{text[:80]!r} is not NUMBER:HEAD, as 7:3f…, of 64 digits")
    return Anchor(int(number), head.lower())
