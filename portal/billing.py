"""What finance can do, for pages and API alike.

A price or a statement changes nothing on a cluster, so there is nobody to nudge: the services are
the actions. Beside :mod:`portal.actions`, which is for everything that a cluster enforces.
"""

from __future__ import annotations

from budgets.services.billing import (
    PriceDraft,
    TierDraft,
    activate_rate_card,
    close_period,
    decide_acceptance,
    decide_adjustment,
    draw_up_statements,
    issue_statements,
    note_look,
    price_faults,
    propose_acceptance,
    propose_adjustment,
    propose_rate_card,
    record_exchange_rate,
    record_spot_prices,
    review_statements,
    send_back_statement,
    set_billing_terms,
    void_statement,
    withdraw_rate_card,
)

__all__ = [
    "PriceDraft",
    "TierDraft",
    "activate_rate_card",
    "close_period",
    "decide_acceptance",
    "decide_adjustment",
    "draw_up_statements",
    "issue_statements",
    "note_look",
    "price_faults",
    "propose_acceptance",
    "propose_adjustment",
    "propose_rate_card",
    "record_exchange_rate",
    "record_spot_prices",
    "review_statements",
    "send_back_statement",
    "set_billing_terms",
    "void_statement",
    "withdraw_rate_card",
]
