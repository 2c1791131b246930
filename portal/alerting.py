"""What pages and API do about alerts.

An alert changes nothing on a cluster, so there is nobody to nudge: the services are called as
they are, behind one door.
"""

from __future__ import annotations

from budgets.services.alerts import (
    create_rule,
    create_webhook,
    remove_rule,
    remove_webhook,
    retry_delivery,
    rotate_webhook,
    snooze_rule,
    test_webhook,
)

__all__ = [
    "create_rule",
    "create_webhook",
    "remove_rule",
    "remove_webhook",
    "retry_delivery",
    "rotate_webhook",
    "snooze_rule",
    "test_webhook",
]
