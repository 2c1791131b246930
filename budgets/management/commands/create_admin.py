"""``manage.py create_admin``: the first platform admin of an empty installation."""

from __future__ import annotations

import getpass
import os
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from budgets.errors import NotAllowed, Rejected
from budgets.services import create_first_admin


class Command(BaseCommand):
    """Asks on a terminal, or reads PORTAL_ADMIN_USERNAME, _EMAIL and _PASSWORD."""

    help = (
        "Create the first platform admin. The command asks for what is missing. Where there is "
        "no terminal, set PORTAL_ADMIN_USERNAME, PORTAL_ADMIN_EMAIL and PORTAL_ADMIN_PASSWORD. "
        "If an admin exists already, the command changes nothing and says so."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Name and address may be arguments; a password never is, for shells remember it."""
        parser.add_argument(
            "--username",
            default=os.environ.get("PORTAL_ADMIN_USERNAME", ""),
            help="user name of the admin; otherwise PORTAL_ADMIN_USERNAME",
        )
        parser.add_argument(
            "--email",
            default=os.environ.get("PORTAL_ADMIN_EMAIL", ""),
            help="mail address of the admin; otherwise PORTAL_ADMIN_EMAIL",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Create the admin, or say in one line what is in the way."""
        username = options["username"] or self._ask("Username")
        email = options["email"] or self._ask("E-mail address")
        password = os.environ.get("PORTAL_ADMIN_PASSWORD") or self._ask_password()
        try:
            user = create_first_admin(username=username, email=email, password=password)
        except NotAllowed as error:
            raise CommandError(str(error)) from error
        except Rejected as error:
            lines = [f"{fault.field or 'request'}: {fault.message}" for fault in error.faults]
            raise CommandError("\n".join(lines)) from error
        self.stdout.write(self.style.SUCCESS(f"{user.username} is the platform admin."))

    def _ask(self, label: str) -> str:
        self._require_terminal(label)
        return input(f"{label}: ").strip()

    def _ask_password(self) -> str:
        self._require_terminal("Password")
        password = getpass.getpass("Password: ")
        if getpass.getpass("Password again: ") != password:
            raise CommandError("The two passwords differ. Run the command again.")
        return password

    def _require_terminal(self, label: str) -> None:
        if not sys.stdin.isatty():
            raise CommandError(
                f"{label} is missing, and there is no terminal to ask on. Set "
                "PORTAL_ADMIN_USERNAME, PORTAL_ADMIN_EMAIL and PORTAL_ADMIN_PASSWORD."
            )
