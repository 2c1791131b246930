"""Seals all that is stored sealed with the newest key in PORTAL_CREDENTIAL_KEYS."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from clusters.services import reseal_credentials
from clusters.vault import SealBroken


class Command(BaseCommand):
    """Put a new key first, run this, take the old key away."""

    help = (
        "Encrypt every stored credential, and the secrets of second factors, with the newest key "
        "of PORTAL_CREDENTIAL_KEYS. After that, older keys can be removed."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """All of them, or none."""
        try:
            clusters, people = reseal_credentials(None)
        except SealBroken as error:
            raise CommandError(error.message) from error
        self.stdout.write(
            f"The credentials of {clusters} clusters and the second factors of {people} people are "
            "now encrypted with the newest key."
        )
