"""Prices per device and hour by flavor, as the dispatcher compares them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal

from django.db import DatabaseError, connection

from budgets.models import Workspace
from budgets.selectors.billing import rates_now

log = logging.getLogger(__name__)

Prices = Callable[[str, datetime], Mapping[str, Decimal]]


def current_prices(namespace: str, now: datetime) -> Mapping[str, Decimal]:
    """What a GPU-hour of each flavor costs a workspace now, on top of its floor.

    The burst price, also where the floor has room: that one is paid for anyway, so it cannot tell
    flavors apart. Empty without a rate card, outside of any workspace, and while the database does
    not answer.
    """
    found = Workspace.objects.filter(namespace=namespace).values_list("account_id", flat=True)
    try:
        account = found.first()
        rates = rates_now(account, now) if account is not None else {}
    except DatabaseError as error:
        log.warning("prices_unknown namespace=%s error=%s", namespace, type(error).__name__)
        connection.close()
        return {}
    return {str(flavor): rate.burst for flavor, rate in rates.items()}


def no_prices(namespace: str, now: datetime) -> Mapping[str, Decimal]:
    """Where there is no database: workers are told apart by everything else."""
    return {}
