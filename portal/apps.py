"""The faces as a Django app."""

from __future__ import annotations

from django.apps import AppConfig


class PortalConfig(AppConfig):
    name = "portal"

    def ready(self) -> None:
        """Settings are looked at whenever Django checks itself."""
        from portal import checks  # noqa: F401  registers
