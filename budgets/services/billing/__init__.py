"""Writes about money: prices, statements, periods. All of them are finance's.

What asks whether a month is open takes the one lock of billing before any other.
"""

from __future__ import annotations

from budgets.services.billing.adjustments import decide_adjustment, propose_adjustment
from budgets.services.billing.approvals import decide_proposal
from budgets.services.billing.chain import Anchor, verify_chain
from budgets.services.billing.closing import DrawSummary, close_period, draw_up_statements
from budgets.services.billing.discrepancies import decide_acceptance, propose_acceptance
from budgets.services.billing.rates import (
    PriceDraft,
    TierDraft,
    price_faults,
    propose_activation,
    propose_rate_card,
    withdraw_rate_card,
)
from budgets.services.billing.seals import BrokenSeal, make_seal
from budgets.services.billing.series import record_spot_prices
from budgets.services.billing.statements import (
    issue_statements,
    note_look,
    propose_void,
    review_statements,
    send_back_statement,
)
from budgets.services.billing.terms import (
    record_exchange_rate,
    set_billing_terms,
    set_invoice_details,
)
