"""Rows that no service would write, and that the database refuses whoever writes them."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from budgets.models import BudgetLine, BudgetRevision, Statement
from tests.billing.conftest import Books
from tests.billing.test_closing import copied, sql
from tests.databases import as_owner

pytestmark = pytest.mark.django_db
APPROVED = "(SELECT MIN(id) FROM budgets_approval)"


@pytest.mark.parametrize(
    ("statement", "want"),
    [
        pytest.param(
            copied(BudgetLine, ceiling="committed - 1"),
            "line_ceiling_at_least_committed",
            id="a burst limit below the committed GPUs",
        ),
        pytest.param(
            copied(BudgetLine, lendable="committed + 1"),
            "line_lendable_at_most_committed",
            id="more to lend than is committed",
        ),
        pytest.param(
            copied(BudgetRevision),
            "revision_number_once|budgets_budgetrevision.number",
            id="two revisions of one number",
        ),
        pytest.param(
            'UPDATE budgets_interval SET start = "end", "end" = start',
            "interval_not_negative",
            id="an interval that ends before it starts",
        ),
        pytest.param(
            "UPDATE budgets_usagerecord SET committed = committed + 1",
            "usage_committed_adds_up",
            id="committed GPUs that are not used, lent or idle",
        ),
        pytest.param(
            "UPDATE budgets_usagerecord SET burst = -1",
            "usage_not_negative",
            id="negative use",
        ),
        pytest.param(
            "UPDATE budgets_accountusage SET burst = burst + 1",
            "account_usage_covered",
            id="burst that nothing covers",
        ),
        pytest.param(
            'INSERT INTO budgets_billingperiod (name, zone, start, "end", head, signature) '
            "VALUES ('٢٠٢٦-١١', 'UTC', '2026-11-01 00:00:00Z', '2026-12-01 00:00:00Z', '', '')",
            "billing_period_named",
            id="a second name of a month",
        ),
        pytest.param(
            "UPDATE budgets_membership SET role = 'finance' WHERE workspace_id IS NOT NULL",
            "membership_scope_fits_role",
            id="finance of one workspace",
        ),
    ],
)
def test_the_database_takes_no_such_row(books: Books, statement: str, want: str):
    with as_owner(), pytest.raises(IntegrityError, match=want), transaction.atomic():
        sql(statement)


@pytest.mark.parametrize(
    ("statement", "want"),
    [
        pytest.param(
            copied(Statement),
            "statement_once_for_account|budgets_statement.account_id",
            id="two of one account and month",
        ),
        pytest.param(
            copied(Statement, account_id="NULL"),
            "statement_once_for_platform|budgets_statement.period_id",
            id="two of the platform",
        ),
        pytest.param(
            copied(Statement, kind="'credit_note'", approval_id=APPROVED),
            "credit_note_credits",
            id="a credit note of nothing",
        ),
        pytest.param(
            "UPDATE budgets_statement SET number = 'ST-2026-9'"
            " WHERE id = (SELECT MIN(id) FROM budgets_statement)",
            "statement_issued_is_numbered",
            id="a number before it is issued",
        ),
    ],
)
def test_the_database_takes_no_such_statement(books: Books, statement: str, want: str):
    books.close()
    with as_owner(), pytest.raises(IntegrityError, match=want), transaction.atomic():
        sql(statement)


def test_the_database_takes_no_number_twice(books: Books):
    books.issued()
    again = copied(Statement, kind="'credit_note'", credits_id="id", approval_id=APPROVED)
    want = "statement_number_once|budgets_statement.number"
    with as_owner(), pytest.raises(IntegrityError, match=want), transaction.atomic():
        sql(again)
