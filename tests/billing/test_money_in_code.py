"""What moves money is found in the code, so that nothing new is left out of four eyes.

Three ways: by the columns of the tables, by who imports a table to write it, and by what asks for
an actor beside the books. ``test_four_eyes`` tries each deed that is found.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, models, transaction

from budgets.models import RateCard, RatePrice
from budgets.services import billing, finance
from budgets.services.budget import dating_back
from budgets.services.guards import REQUIRED
from tests.billing.conftest import Books

ROOT = Path(__file__).parents[2]
APPS = ("budgets", "clusters", "portal")
TABLES = tuple(apps.get_app_config("budgets").get_models())
APPROVED = {
    table for table in TABLES if any(row.name == "approval" for row in table._meta.concrete_fields)
}
# Prices and amounts that hold with the row that they belong to, which is fixed once it is decided.
WITH = {"RatePrice": "RateCard", "RateTier": "RatePrice", "StatementLine": "Statement"}
# Decimals that are no money, or that nobody is billed by.
NO_MONEY = {
    "Account": "its weight in fair sharing",
    "Workspace": "its weight in fair sharing",
    "Flavor": "how often its GPUs may be promised",
    "SpendRule": "a bound on what may be spent",
    "AlertRule": "when somebody is told",
    "Alert": "what was told",
    "MonthOutlook": "an estimate",
}

# Modules that know a table of money and write rows, and who agreed to what they write.
WRITERS = {
    "budgets/services/billing/adjustments.py": "decide_adjustment",
    "budgets/services/billing/approvals.py": "decide_proposal",
    "budgets/services/billing/chain.py": "blocks of the ledger, from what is closed",
    "budgets/services/billing/closing.py": "drafts, and what facts and agreed prices come to",
    "budgets/services/billing/discrepancies.py": "decide_acceptance",
    "budgets/services/billing/rates.py": "rate_card.activate",
    "budgets/services/billing/seals.py": "seals, over what is written",
    "budgets/services/billing/series.py": "spot_price.record",
    "budgets/services/billing/statements.py": "statement.void, and numbers",
    "budgets/services/billing/terms.py": "exchange_rate.record",
    "budgets/services/budget/in_force.py": "where the lines of a revision stand",
    "budgets/services/budget/revisions.py": "budget.date_back; others begin in the future",
    "budgets/services/finance.py": "installation.price_tolerance",
    "budgets/services/fleet/accounts.py": "a request is withdrawn with its workspace",
    "budgets/services/fleet/pools.py": "capacity, and a discrepancy that is open",
    "budgets/services/usage/meter.py": "how far it has come",
    "budgets/services/usage/reconciliation.py": "discrepancies that are open",
    "clusters/reconcile/usage/unwatched.py": "discrepancies that are open",
    "clusters/services/taking_back.py": "cluster.take_back",
}
WRITES = {
    "create", "bulk_create", "get_or_create", "update_or_create", "update", "bulk_update", "save",
    "save_checked", "delete",
}  # fmt: skip
# What takes an actor and asks for no role by itself.
ASKED_BY_OTHERS = {
    "approvals.approve": "the second signature itself, in a deed that asked for finance",
    "approvals.propose": "in a deed that asked for its role",
    "finance.tell_finance": "writes a sentence",
    "finance.require_fair_grant": "refuses",
}


def test_every_table_with_a_price_or_an_amount_is_approved_or_says_why_not():
    found = {
        table
        for table in apps.get_models()
        if any(isinstance(row, models.DecimalField) for row in table._meta.concrete_fields)
    }
    assert {table.__name__ for table in found - APPROVED} == set(WITH) | set(NO_MONEY)
    names = {table.__name__: table for table in TABLES}
    for child, parent in WITH.items():
        keys = {row.related_model for row in names[child]._meta.concrete_fields if row.is_relation}
        assert names[parent] in keys
        assert names[parent] in APPROVED or parent in WITH


def _writers() -> Iterator[str]:
    """Modules that import a table of money and write rows; selectors and models write none."""
    money = {table.__name__ for table in APPROVED} | set(WITH)
    for path in sorted(path for app in APPS for path in (ROOT / app).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if any(part in name for part in ("/migrations/", "/models/", "budgets/selectors/")):
            continue
        nodes = list(ast.walk(ast.parse(path.read_text())))
        imported = {
            alias.name
            for node in nodes
            if isinstance(node, ast.ImportFrom) and "models" in (node.module or "")
            for alias in node.names
        }
        called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
        if imported & money and {text.rpartition(".")[2] for text in called} & WRITES:
            yield name


def test_what_writes_beside_a_table_of_money_is_known():
    assert set(_writers()) == set(WRITERS)


def _modules() -> Iterator[ModuleType]:
    for found in pkgutil.iter_modules(billing.__path__, f"{billing.__name__}."):
        yield importlib.import_module(found.name)
    yield from (finance, dating_back)


def test_every_write_beside_the_books_asks_for_a_role():
    for module in _modules():
        for name, found in vars(module).items():
            if name.startswith("_") or not inspect.isfunction(found):
                continue
            if found.__module__ != module.__name__:
                continue
            if next(iter(inspect.signature(found).parameters), "") != "actor":
                continue
            short = f"{module.__name__.rpartition('.')[2]}.{name}"
            asks = REQUIRED.get(f"{module.__name__}.{name}", "")
            assert bool(asks) != (short in ASKED_BY_OTHERS), short


@pytest.mark.postgres
@pytest.mark.django_db
def test_a_card_that_two_agreed_on_takes_no_further_price(books: Books):
    card = RateCard.objects.get(state="active")
    priced = RatePrice.objects.get(card=card)
    rows = {
        "budgets_rateprice": f"""(card_id, flavor_id, committed, burst, lending_credit, is_dynamic)
            VALUES ({card.pk}, {books.fleet.flavors["a100"].pk}, 0, 0, 0, false)""",
        "budgets_ratetier": f"""(price_row_id, of_class, above, price)
            VALUES ({priced.pk}, 'burst', 1, 0)""",
    }
    for table, row in rows.items():
        with pytest.raises(IntegrityError, match="takes no more prices"), transaction.atomic():
            connection.cursor().execute(f"INSERT INTO {table} {row}")
