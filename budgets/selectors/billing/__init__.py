"""Reads about money: prices in force, costs, statements, and what closing a month needs."""

from __future__ import annotations

from budgets.selectors.billing.capacity import capacity_facts
from budgets.selectors.billing.costs import costs
from budgets.selectors.billing.documents import draw
from budgets.selectors.billing.looks import StatementChanges, changes_since_look
from budgets.selectors.billing.months import month_at, month_of
from budgets.selectors.billing.periods import billing_months, check_list, period_for
from budgets.selectors.billing.prices import (
    card_difference,
    card_in_force,
    cards_in_force,
    portal_currency,
    prices_of,
    rate_card_at,
    rates_now,
    visible_rate_cards,
)
from budgets.selectors.billing.reconciliation import (
    discrepancies_to_settle,
    reconciliation,
    visible_discrepancies,
)
from budgets.selectors.billing.rows import card_of, charge_lines
from budgets.selectors.billing.statements import (
    Part,
    StatementSheet,
    corrections_in,
    line_for,
    line_trace,
    month_totals,
    statement_for,
    statement_rows,
    statement_sheet,
    visible_adjustments,
    visible_statements,
)
from budgets.selectors.billing.trials import Tried, try_card
