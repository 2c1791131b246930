"""The audit log on its way to other systems: every entry, in order, at least once.

Each receiver has a cursor in the database, which moves when a batch has arrived and never gives up.
Keys are given before their transactions end: what was missing when a later entry was sent is sent
once it is there, as seals take it in (:mod:`budgets.services.billing.seals`). A worker that dies
between sending and noting it sends again; entries have ids.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

import structlog
from django.conf import settings
from django.db.models import F

from budgets.models import AuditEntry, AuditStream
from budgets.selectors.alerts import withheld_from
from budgets.selectors.audit import audit_document
from budgets.selectors.clock import utc_now
from budgets.services.alerts.posting import PostFailed
from budgets.services.alerts.syslog import Syslog, line_of, send_lines
from budgets.services.alerts.webhooks import send

log = structlog.stdlib.get_logger(__name__)

BATCH: Final = 100
BATCHES: Final = 50
"""Of one run; the next goes on."""
PAUSES: Final = tuple(timedelta(seconds=s) for s in (15, 60, 300))
"""After each failure; the last one for ever."""
CLAIM: Final = timedelta(minutes=2)
"""Longer than any batch takes; who dies with it leaves it to the next."""
LATE: Final = 10_000
"""An entry is missed when so many keys were given while its transaction was open."""


def stream_audit() -> dict[str, int]:
    """Send each receiver what it has not yet; returns how many entries, and how many failed."""
    if settings.PORTAL_AUDIT_SYSLOG:
        AuditStream.objects.get_or_create(receiver="syslog", defaults={"next_at": utc_now()})
    due = AuditStream.objects.filter(next_at__lte=utc_now()).select_related("webhook__created_by")
    sent = failed = 0
    for stream in due:
        if _is_off(stream):
            continue
        for _ in range(BATCHES):
            arrived = _go_on(stream)
            failed += arrived is None
            sent += arrived or 0
            if not arrived or arrived < BATCH:
                break
    return {"sent": sent, "failed": failed}


def _is_off(stream: AuditStream) -> bool:
    if stream.webhook is None:
        return not settings.PORTAL_AUDIT_SYSLOG
    return stream.webhook.removed_at is not None


def _go_on(stream: AuditStream) -> int | None:
    """Send one batch: how many entries arrived, None when they did not."""
    now = utc_now()
    mine = AuditStream.objects.filter(pk=stream.pk, turn=stream.turn)
    if not mine.update(turn=F("turn") + 1, next_at=now + CLAIM):
        return 0  # somebody else sends
    stream.turn += 1
    entries = _batch(stream)
    mine = AuditStream.objects.filter(pk=stream.pk, turn=stream.turn)
    try:
        if entries:
            _send(stream, entries, now)
    except PostFailed as error:
        pause = PAUSES[min(stream.failures, len(PAUSES) - 1)]
        stream.failures += 1
        mine.update(failures=stream.failures, problem=str(error)[:300], next_at=utc_now() + pause)
        log.warning("audit_not_sent", receiver=stream.receiver, failures=stream.failures)
        return None
    stream.failures = 0
    changes = {"failures": 0, "problem": "", "next_at": now}
    if entries:
        _move(stream, {entry.pk for entry in entries})
        changes |= {"position": stream.position, "missing": stream.missing, "sent_at": utc_now()}
    return len(entries) if mine.update(**changes) else 0


def _batch(stream: AuditStream) -> list[AuditEntry]:
    found = AuditEntry.objects.select_related("account", "workspace").order_by("pk")
    late = list(found.filter(pk__in=stream.missing)[:BATCH])
    return late + list(found.filter(pk__gt=stream.position)[: BATCH - len(late)])


def _move(stream: AuditStream, arrived: set[int]) -> None:
    last = max(stream.position, *arrived)
    passed = {*stream.missing, *range(max(stream.position, last - LATE) + 1, last)}
    stream.missing = sorted(key for key in passed - arrived if key > last - LATE)
    stream.position = last


def _send(stream: AuditStream, entries: list[AuditEntry], now: datetime) -> None:
    """Raises PostFailed: Not all of it is known to have arrived."""
    told = [audit_document(entry) for entry in entries]
    if stream.webhook is None:
        host = urlsplit(settings.PORTAL_PUBLIC_URL).hostname or "-"
        lines = [line_of(document, host=host) for document in told]
        send_lines(Syslog.of(settings.PORTAL_AUDIT_SYSLOG), lines)
        return
    if reason := withheld_from(stream.webhook):
        raise PostFailed(f"not sent: {reason}")
    key = f"audit-{told[0]['id']}-{told[-1]['id']}"
    send(stream.webhook, {"kind": "audit", "entries": told}, delivery=key, now=now)
