"""Getting the word out: each delivery claimed, tried, tried again later, given up with a reason.

At least once: a worker killed between sending and noting it sends again, under the same id.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from smtplib import SMTPException
from typing import Any, Final
from urllib.parse import quote

import structlog
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import F

from budgets.models import Alert, BillingPeriod, Delivery, Export, User
from budgets.selectors.alerts import withheld
from budgets.selectors.clock import utc_now
from budgets.services.alerts.posting import PostFailed
from budgets.services.alerts.webhooks import send
from budgets.services.audit import audit, state_of
from budgets.services.guards import require_office

log = structlog.stdlib.get_logger(__name__)

PAUSES: Final = tuple(timedelta(minutes=m) for m in (1, 5, 30, 120, 360, 720))
"""After each failure; the one after the last gives up."""
AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class Delivered:
    """What one run came to."""

    sent: int
    failed: int


def deliver_alerts(now: datetime | None = None) -> Delivered:
    """Try every delivery that is due, at most :data:`AT_ONCE`; safe to run twice at once."""
    instant = now or utc_now()
    due = Delivery.objects.filter(state=Delivery.State.WAITING, next_at__lte=instant)
    sent = failed = 0
    joined = due.select_related(
        "alert__rule__workspace",
        "alert__rule__account",
        "alert__rule__created_by",
        "webhook__created_by",
        "export__operation",
        "export__requested_by",
        "period__seal",
        "entry",
    )
    for row in joined[:AT_ONCE]:
        if not _claim(row, instant):
            continue
        if reason := withheld(row):
            failed += 1
            _withhold(row, reason)
            continue
        problem = _try(row, instant)
        if problem:
            failed += 1
        else:
            sent += 1
        _note(row, problem, instant)
    return Delivered(sent, failed)


@transaction.atomic
def retry_delivery(actor: User | None, *, delivery: Delivery) -> None:
    """Try one that was given up once more, from the start."""
    require_office(actor, deed="deliver again")
    row = Delivery.objects.select_for_update(of=("self",)).get(pk=delivery.pk)
    if row.state != Delivery.State.GIVEN_UP:
        return
    before = state_of(row, "channel", "state", "attempts", "problem")
    row.state, row.attempts, row.next_at = Delivery.State.WAITING, 0, utc_now()
    row.save(update_fields=["state", "attempts", "next_at"])
    after = state_of(row, "channel", "state", "attempts")
    audit(actor, "delivery.retry", row, before=before, after=after)


def _claim(row: Delivery, now: datetime) -> bool:
    """Take a row for this attempt; whoever dies with it leaves it to the next pause."""
    pause = PAUSES[min(row.attempts, len(PAUSES) - 1)]
    return bool(
        Delivery.objects.filter(
            pk=row.pk, state=Delivery.State.WAITING, attempts=row.attempts
        ).update(attempts=F("attempts") + 1, next_at=now + pause)
    )


def _try(row: Delivery, now: datetime) -> str:
    """Send it; why it failed, empty when it did not."""
    try:
        if row.channel == Delivery.Channel.MAIL:
            _mail(row)
        else:
            assert row.webhook is not None
            about, key = word_of(row)
            send(row.webhook, about, delivery=key, now=now)
    except PostFailed as error:
        return str(error)
    except (SMTPException, OSError) as error:
        return f"the mail server did not accept it ({type(error).__name__})"
    return ""


def _note(row: Delivery, problem: str, now: datetime) -> None:
    changes: dict[str, Any] = {"problem": problem[:300]}
    if not problem:
        changes |= {"state": Delivery.State.SENT, "sent_at": now}
    elif row.attempts + 1 > len(PAUSES):
        changes["state"] = Delivery.State.GIVEN_UP
    Delivery.objects.filter(pk=row.pk).update(**changes)
    if problem:
        log.warning("alert_not_delivered", delivery=row.pk, attempt=row.attempts + 1)


def _withhold(row: Delivery, reason: str) -> None:
    """Nothing is sent, now or later; the delivery says why."""
    changes = {"state": Delivery.State.GIVEN_UP, "problem": f"not sent: {reason}"[:300]}
    Delivery.objects.filter(pk=row.pk).update(**changes)
    log.warning("delivery_withheld", delivery=row.pk)


def word_of(row: Delivery) -> tuple[dict[str, Any], str]:
    """What a webhook is told, and the id under which it may be told twice."""
    if row.alert is not None:
        return _body(row.alert), str(row.alert.pk)
    if row.period is not None:
        return close_body(row.period), f"close-{row.period.close_number}"
    assert row.export is not None
    return export_body(row.export), f"export-{row.export.pk}"


def _mail(row: Delivery) -> None:
    if row.alert is not None:
        kind, key, address = "alert", str(row.alert.pk), "/alerts/"
        subject, text = f"GPU budget alert: {row.alert.rule.subject}", row.alert.text
    elif row.period is not None:
        kind, key = "close", str(row.period.close_number)
        address = f"/billing/months/{row.period.name}/?zone={quote(row.period.zone)}"
        subject, text = f"Closed: {row.period}", close_text(row.period)
    elif row.entry is not None:
        kind, key, told = "entry", str(row.entry.pk), row.entry.after
        address, text = told.get("at", "/billing/approvals/"), told["text"]
        subject = f"GPU budgets: {told.get('about', 'who has the finance role')}"
    else:
        assert row.export is not None
        kind, key, address = "export", str(row.export.pk), f"/exports/{row.export.pk}/"
        subject, text = f"Export: {row.export.file_name}", export_text(row.export)
    EmailMessage(
        subject=subject.replace("\n", " "),
        body=f"{text}\n\n{settings.PORTAL_PUBLIC_URL}{address}\n",
        to=[row.address],
        headers={"Message-ID": f"<{kind}-{key}-{row.pk}@gpu-budget-portal>"},
    ).send()


def export_text(export: Export) -> str:
    """The word of one file for people."""
    if not export.finished_at:
        return f"{export.file_name} could not be written: {export.operation.message}"
    return (
        f"{export.file_name} is ready: {export.rows:,} rows, {export.size:,} bytes.\n"
        f"SHA-256: {export.sha256}"
    )


def export_body(export: Export) -> dict[str, Any]:
    """The word of one file for programs; the file itself is fetched with a token."""
    return {
        "kind": "export",
        "id": export.pk,
        "state": export.operation.state,
        "file": export.file_name,
        **state_of(export, "dataset", "period", "zone", "rows", "size", "sha256"),
        "text": export_text(export),
        "url": f"{settings.PORTAL_PUBLIC_URL}/api/v1/exports/{export.pk}/file",
    }


def close_text(period: BillingPeriod) -> str:
    """The word of a closed month for people: what they keep to miss it by."""
    anchor = f"{period.close_number}:{period.head}"
    return (
        f"{period} is closed, as closed month {period.close_number} of the ledger.\n"
        f"Head: {period.head}\n\n"
        f"Keep this mail. manage.py verify_ledger --anchor {anchor} checks that the ledger still "
        "has that month as it was closed."
    )


def close_body(period: BillingPeriod) -> dict[str, Any]:
    """The word of a closed month for programs."""
    seal = getattr(period, "seal", None)
    return {
        "kind": "close",
        **state_of(period, "name", "zone", "close_number", "head", "signature", "closed_at"),
        "seal": {"number": seal.number, "digest": seal.digest} if seal else None,
        "text": close_text(period),
    }


def _body(alert: Alert) -> dict[str, Any]:
    rule = alert.rule
    return {
        "kind": "alert",
        "id": str(alert.pk),
        "account": rule.account.slug,
        "workspace": rule.workspace.namespace if rule.workspace else None,
        **state_of(rule, "measure", "limit", "at_percent"),
        **state_of(alert, "value", "exhausted_at", "text", "raised_at"),
        "window": {"start": alert.window_start.isoformat(), "end": alert.window_end.isoformat()},
    }
