"""``manage.py remove_second_factor``: for the admin who lost it, where no other admin is there."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from budgets.errors import Rejected
from budgets.models import User
from budgets.services import remove_second_factor


class Command(BaseCommand):
    """As another admin does it on the person's page; the audit log names the portal."""

    help = (
        "Remove the second factor of somebody who lost their phone and their recovery codes. Their "
        "sessions and API tokens end; they are told, and finance is if they belong to it."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Whose, and why."""
        parser.add_argument("username", help="user name of the person")
        parser.add_argument("--reason", required=True, help="kept in the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        """Remove it, or say in one line what is in the way."""
        user = User.objects.filter(username=options["username"]).first()
        if user is None:
            raise CommandError(f"Nobody is called {options['username']!r} here.")
        try:
            remove_second_factor(None, user=user, reason=options["reason"])
        except Rejected as error:
            raise CommandError(error.faults[0].message) from error
        self.stdout.write(f"A password alone opens the account of {user} again.")
