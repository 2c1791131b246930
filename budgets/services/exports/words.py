"""The word of a file that a plan made: to its maker by mail, to webhooks, by the outbox of alerts.

Source: issue 6, section 3.
"""

from __future__ import annotations

from django.db.models import Q

from budgets.models import Delivery, Export, Webhook
from budgets.selectors.clock import utc_now
from budgets.selectors.roles import roles_of


def tell_of_export(export: Export) -> int:
    """Put the word of a file into the outbox, or that it could not be written.

    A webhook of an account is told of the files of that account; one of the whole platform only
    of files of people who see the whole platform. The file itself is not sent.

    Returns:
        How many are told; none for an export that somebody asked for by hand, who sees it.
    """
    if export.plan is None:
        return 0
    now = utc_now()
    user = export.requested_by
    hooks = Q(account__slug=export.account) if export.account else Q(pk__in=[])
    if roles_of(user).sees_everything:
        hooks |= Q(account=None)
    rows = [
        Delivery(
            export=export,
            channel=Delivery.Channel.WEBHOOK,
            address=f"webhook:{hook.pk}",
            webhook=hook,
            next_at=now,
        )
        for hook in Webhook.objects.filter(hooks, removed_at=None)
    ]
    if user.email:
        mail = Delivery.Channel.MAIL
        rows.append(Delivery(export=export, channel=mail, address=user.email, next_at=now))
    Delivery.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows)
