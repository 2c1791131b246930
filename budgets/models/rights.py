"""What the portal's role may do in the database: less than its owner, and nothing to the ledger.

The one declaration of it; ``manage.py grant_rights`` makes PostgreSQL say the same. The role owns
nothing: it cannot take triggers off, and no table is emptied or changed in its shape by it. What
a table allows follows from its kind, so that a new one cannot be left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from django.apps import apps
from django.db import models

from budgets.models.approvals import Installation, Proposal
from budgets.models.base import FrozenFields, InsertOnly, Retiring
from budgets.models.billing import BillingPeriod, BillingTerms, RateCard
from budgets.models.budget import BudgetLine, BudgetRevision
from budgets.models.statements import Adjustment, NumberSeries, Statement, StatementLine
from budgets.models.usage import AccountUsage, UsageRecord, WorkloadUsage

# Decided once, never deleted: only what is not frozen is ever written again.
_DECIDED: Final = (RateCard, Adjustment, Proposal)
_NEVER_DELETED: Final = (BillingPeriod, BillingTerms, NumberSeries, BudgetRevision, Installation)
# Of these, rows of open time and drafts are written anew; triggers hold the others.
_OPEN: Final = (UsageRecord, AccountUsage, WorkloadUsage, Statement)
MIGRATIONS: Final = "django_migrations"


def rights_of(model: type[models.Model]) -> tuple[str, ...]:
    """Privileges on the table of a model, in PostgreSQL's words."""
    if issubclass(model, Retiring):
        return "SELECT", "INSERT", "DELETE"
    if issubclass(model, InsertOnly) or model is BudgetLine:
        return "SELECT", "INSERT"
    if model is StatementLine:
        return "SELECT", "INSERT", "DELETE"
    if model in _NEVER_DELETED:
        return "SELECT", "INSERT", "UPDATE"
    if model in _DECIDED and issubclass(model, FrozenFields):
        columns = ", ".join(
            f'"{field.column}"'
            for field in model._meta.concrete_fields
            if field.name not in (*model.frozen_fields, "id")
        )
        return "SELECT", "INSERT", f"UPDATE ({columns})"
    return "SELECT", "INSERT", "UPDATE", "DELETE"


def ledger() -> Iterator[type[models.Model]]:
    """The tables that money stands on: no one empties them."""
    for model in apps.get_models():
        is_kept = model in (*_DECIDED, *_NEVER_DELETED, *_OPEN, BudgetLine, StatementLine)
        if is_kept or (issubclass(model, InsertOnly) and model._meta.app_label == "budgets"):
            yield model


def grants(role: str) -> Iterator[str]:
    """Statements that give a role its rights, and no other; the owner of the tables runs them.

    Args:
        role: Quoted.
    """
    yield f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC, {role}"
    yield f"REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM PUBLIC, {role}"
    yield f"REVOKE CREATE ON SCHEMA public FROM PUBLIC, {role}"
    yield f"GRANT USAGE ON SCHEMA public TO {role}"
    yield f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}"
    yield f'GRANT SELECT ON "{MIGRATIONS}" TO {role}'
    for model in apps.get_models(include_auto_created=True):
        if model._meta.managed and not model._meta.proxy:
            rights = ", ".join(rights_of(model))
            yield f'GRANT {rights} ON "{model._meta.db_table}" TO {role}'
