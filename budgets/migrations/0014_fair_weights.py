"""Accounts and workspaces have a weight of fair sharing."""

from __future__ import annotations

from decimal import Decimal

from django.core.validators import MinValueValidator
from django.db import migrations, models
from django.db.models import Q


def _weight() -> models.DecimalField[Decimal, Decimal]:
    return models.DecimalField(
        max_digits=9, decimal_places=3, default=Decimal(1), validators=[MinValueValidator(0)]
    )


class Migration(migrations.Migration):
    dependencies = [("budgets", "0013_reminders_of_budget_ends")]

    operations = [
        operation
        for model in ("account", "workspace")
        for operation in (
            migrations.AddField(model_name=model, name="fair_weight", field=_weight()),
            migrations.AddConstraint(
                model_name=model,
                constraint=models.CheckConstraint(
                    name=f"{model}_weight_not_negative", condition=Q(fair_weight__gte=0)
                ),
            ),
        )
    ]
