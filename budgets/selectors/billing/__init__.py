"""Reads about money: prices in force, costs, statements, and what closing a month needs."""

from __future__ import annotations

from budgets.selectors.billing.capacity import capacity_facts
from budgets.selectors.billing.costs import Cost, cost, costs
from budgets.selectors.billing.documents import Drawing, Drawn, accounts_of, draw
from budgets.selectors.billing.looks import Changes, changes_since_look
from budgets.selectors.billing.months import closed_edges, month_at, month_of, open_month
from budgets.selectors.billing.periods import Check, billing_months, check_list, period_for
from budgets.selectors.billing.prices import (
    PriceDifference,
    account_currency,
    card_difference,
    card_in_force,
    cards_in_force,
    exchange_rate,
    portal_currency,
    prices_of,
    rate_card_at,
    rates_now,
    visible_rate_cards,
)
from budgets.selectors.billing.reconciliation import (
    Reconciliation,
    discrepancies_to_settle,
    reconciliation,
    unsettled_in,
    visible_discrepancies,
)
from budgets.selectors.billing.rows import charge_lines
from budgets.selectors.billing.statements import (
    Day,
    LineTrace,
    MonthTotal,
    Part,
    StatementSheet,
    WorkloadPart,
    corrections_in,
    line_for,
    line_trace,
    month_totals,
    statement_for,
    statement_sheet,
    visible_adjustments,
    visible_statements,
)
from budgets.selectors.billing.trials import Tried, try_card
