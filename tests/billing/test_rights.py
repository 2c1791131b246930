"""The portal's role in PostgreSQL owns nothing and cannot change, delete or empty the ledger.

All tests of a run on PostgreSQL have this role (tests/databases.py), so each flow works with it.
"""

from __future__ import annotations

from io import StringIO

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import IntegrityError, ProgrammingError, connection, transaction

from budgets.models import AuditEntry, RateCard, Seal, StatementLine
from budgets.models.rights import ledger, rights_of
from budgets.services.billing import make_seal
from tests.billing.conftest import Books
from tests.databases import ROLE, as_owner

pytestmark = [pytest.mark.django_db, pytest.mark.postgres]
LEDGER = sorted(model._meta.db_table for model in ledger())
MODELS = {model._meta.db_table: model for model in apps.get_models()}
VERBS = {
    "UPDATE": 'UPDATE "{}" SET "{}" = "{}"',
    "DELETE": 'DELETE FROM "{}"',
    "TRUNCATE": 'TRUNCATE "{}" CASCADE',
    "TRIGGER": 'ALTER TABLE "{}" DISABLE TRIGGER USER',
    "DROP": 'DROP TABLE "{}" CASCADE',
    "RULE": 'CREATE RULE quiet AS ON DELETE TO "{}" DO INSTEAD NOTHING',
}
# What the role may not do to rows, said once more: whoever gives it more has to say so here.
KEPT = {
    "UPDATE DELETE": "adjustment approval auditentry budgetline correction exchangerate ledgerblock"
    " proposal ratecard rateprice ratetier seal spotprice",
    "UPDATE": "statementline",
    "DELETE": "billingperiod billingterms budgetrevision installation numberseries",
    "": "accountusage statement usagerecord workloadusage",
}
OF_TABLES = {f"budgets_{name}": verbs for verbs, names in KEPT.items() for name in names.split()}
# Nobody but their owner does these.
OF_THE_OWNER = ("TRUNCATE", "TRIGGER", "DROP", "RULE")
CASES = [
    (table, verb) for table, verbs in OF_TABLES.items() for verb in (*verbs.split(), *OF_THE_OWNER)
]


def run(statement: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def statement_of(table: str, verb: str) -> str:
    # A column that nobody may write again, where a part of them may be.
    frozen = next(iter(getattr(MODELS[table], "frozen_fields", ())), "id")
    column = MODELS[table]._meta.get_field(frozen).column
    return VERBS[verb].format(table, column, column)


@pytest.mark.parametrize(("table", "verb"), CASES)
def test_the_portal_cannot(table: str, verb: str):
    with pytest.raises(ProgrammingError, match=r"permission denied|must be owner"):
        run(statement_of(table, verb))


def test_what_is_insert_only_allows_reading_and_adding_alone():
    assert {rights_of(model) for model in (AuditEntry, Seal)} == {("SELECT", "INSERT")}
    assert "UPDATE" not in rights_of(StatementLine)
    assert 'UPDATE ("reason", "state", "valid_from", "decided_by_id", "decided_at"' in str(
        rights_of(RateCard)
    )
    assert sorted(OF_TABLES) == LEDGER


@pytest.mark.parametrize("table", LEDGER)
def test_its_owner_does_not_empty_it_by_accident(table: str):
    with as_owner(), pytest.raises(IntegrityError, match="is never emptied"):
        run("SET CONSTRAINTS ALL IMMEDIATE")
        run(f'TRUNCATE "{table}" CASCADE')


def test_the_portal_cannot_say_that_it_is_a_test():
    with pytest.raises(ProgrammingError, match="permission denied"):
        run("SET LOCAL portal.empties_its_tables = 'on'; TRUNCATE budgets_auditentry")


def test_the_role_owns_nothing_and_has_the_declared_rights_alone():
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        assert cursor.fetchone() == (ROLE,)
        cursor.execute(
            "SELECT table_name, string_agg(privilege_type, ',') FROM"
            " information_schema.role_table_grants WHERE grantee = current_user"
            " AND privilege_type IN ('TRUNCATE', 'REFERENCES', 'TRIGGER') GROUP BY 1"
        )
        assert cursor.fetchall() == []
        cursor.execute("SELECT has_schema_privilege('public', 'CREATE')")
        assert cursor.fetchone() == (False,)
        cursor.execute(
            "SELECT privilege_type FROM information_schema.role_table_grants"
            " WHERE grantee = current_user AND table_name = 'django_migrations'"
        )
        assert cursor.fetchall() == [("SELECT",)]
    with pytest.raises(ProgrammingError, match="permission denied"):
        run("SET session_replication_role = 'replica'")
    with pytest.raises(ProgrammingError, match=r"permission denied|must be owner"):
        run("SELECT setval(pg_get_serial_sequence('budgets_auditentry', 'id'), 1)")


def test_a_role_that_owns_the_tables_is_not_taken_for_the_portals():
    with as_owner(), pytest.raises(CommandError, match="owns tables"):
        call_command("grant_rights", "portal", stdout=StringIO())


def test_the_password_is_that_of_the_environment(monkeypatch):
    monkeypatch.setenv("PORTAL_DATABASE_PASSWORD", "a password of the role")
    with as_owner(), connection.cursor() as cursor:
        call_command("grant_rights", ROLE, stdout=StringIO())
        cursor.execute("SELECT rolpassword, rolcanlogin FROM pg_authid WHERE rolname = %s", [ROLE])
        digest, can_log_in = cursor.fetchone()
    assert digest.startswith("SCRAM-SHA-256") and can_log_in


def test_a_new_right_is_taken_back_with_the_next_migrate(books: Books):
    with as_owner():
        run(f"GRANT DELETE ON budgets_auditentry TO {ROLE}")
        call_command("grant_rights", ROLE, stdout=StringIO())
    with pytest.raises(ProgrammingError, match="permission denied"):
        run("DELETE FROM budgets_auditentry")
    assert make_seal() is not None
