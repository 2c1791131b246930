"""Spend rules: setting them, breaking the glass, and letting them take effect."""

from __future__ import annotations

from budgets.services.spending.rules import (
    RuleDraft,
    break_glass,
    change_spend_rule,
    create_spend_rule,
    mend_glass,
    remove_spend_rule,
)
from budgets.services.spending.settle import settle_spending, settle_workspace
