"""Spend rules: setting them, breaking the glass, and letting them take effect."""

from __future__ import annotations

from budgets.services.spending.glass import break_glass, mend_glass
from budgets.services.spending.rules import (
    RuleDraft,
    change_spend_rule,
    create_spend_rule,
    remove_spend_rule,
)
from budgets.services.spending.settle import Settled, settle_spending, settle_workspace
