"""``manage.py check_settings``: what is wrong or missing in the settings, all at once."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from budgets.services import broken_second_factors
from clusters import services
from portal import checks


def _unreadable() -> list[str]:
    """Of what no key opens; nothing where there is no database to ask yet."""
    try:
        broken = services.broken_credentials(), broken_second_factors()
    except DatabaseError:
        return []
    return [services.words_of_broken(*broken)] if any(broken) else []


class Command(BaseCommand):
    help = (
        "List every setting that is wrong, missing or doubtful, and say how to correct it. No "
        "secret is shown. Exit status 1: web, workers and beat would not start."
    )
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        found = checks.found()
        refused = [checks.told(message) for message in found if message.is_serious()]
        doubtful = [checks.told(message) for message in found if not message.is_serious()]
        if not refused:
            doubtful += _unreadable()
        for words in doubtful:
            self.stdout.write(f"Doubtful: {words}")
        if refused:
            raise CommandError("\n  ".join(["These settings are wrong or missing:", *refused]))
        self.stdout.write(self.style.SUCCESS("No setting is wrong or missing."))
