"""``manage.py check_settings``: what is wrong or missing in the settings, all at once."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from portal import checks


class Command(BaseCommand):
    help = (
        "List every setting that is wrong, missing or doubtful, and say how to correct it. No "
        "secret is shown. Exit status 1: web, workers and beat would not start."
    )
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        found = checks.found()
        refused = [checks.told(message) for message in found if message.is_serious()]
        for message in found:
            if not message.is_serious():
                self.stdout.write(f"Doubtful: {checks.told(message)}")
        if refused:
            raise CommandError("\n  ".join(["These settings are wrong or missing:", *refused]))
        self.stdout.write(self.style.SUCCESS("No setting is wrong or missing."))
