"""What was promised, used and owed."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate, pre_migrate


class BudgetsConfig(AppConfig):
    name = "budgets"
    verbose_name = "Budgets"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from budgets.models.triggers import after_migrate, before_migrate

        pre_migrate.connect(before_migrate, sender=self)
        post_migrate.connect(after_migrate, sender=self)
