"""Exports as long work: asked for, written by a worker into the spool folder, removed in time.

A request is a row; the workers look for waiting rows, so a lost message loses no export. One
worker writes a file at a time under a name of its own attempt and gives it its final name only
while the attempt is still its own: a worker that was thought dead cannot replace the file.

Source: issue 6, section 3.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import structlog
from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.db.models import Q

from budgets.errors import Rejected
from budgets.exports import FORMATS, Table, pick
from budgets.models import Export, Operation
from budgets.selectors.billing import month_of
from budgets.selectors.clock import utc_now
from budgets.selectors.exports.rows import ExportRows, export_rows
from budgets.selectors.roles import roles_of, visible_workspaces
from budgets.services.alerts.webhooks import put_into_outbox
from budgets.services.operations import advance_operation, finish_operation

log = structlog.stdlib.get_logger(__name__)
MOST_ATTEMPTS = 3
STALE = timedelta(minutes=5)
TELL_EVERY_S = 2.0
TELL_EVERY_FACTS = 256
WORK_FOR_S = 1200.0


class _TakenOver(Exception):
    """Another worker writes this export now."""


def run_exports() -> dict[str, int]:
    """Remove what has expired, then write waiting exports until none waits or 20 minutes passed.

    Safe to run anywhere and at any time; each export is written by one worker.
    """
    removed = remove_expired()
    begun, written = time.monotonic(), 0
    while time.monotonic() - begun < WORK_FOR_S:
        export = _claim()
        if export is None:
            break
        _run(export)
        written += 1
    return {"written": written, "removed": removed}


def remove_expired() -> int:
    """Remove the files of exports whose time is over; returns how many."""
    gone = Export.objects.filter(expires_at__lt=utc_now(), removed_at__isnull=True)
    count = 0
    for export in gone:
        spool_path(export).unlink(missing_ok=True)
        Export.objects.filter(pk=export.pk).update(removed_at=utc_now())
        count += 1
    return count


def spool_path(export: Export) -> Path:
    """Where the finished file lies."""
    suffix = FORMATS[export.format].suffix
    return Path(settings.PORTAL_SPOOL_FOLDER) / f"{export.pk}.{suffix}"


def _claim() -> Export | None:
    """Take the oldest export that waits, or whose worker has not been heard of for long."""
    now = utc_now()
    can_skip = connection.features.has_select_for_update_skip_locked
    with transaction.atomic():
        waiting = Export.objects.filter(
            Q(alive_at__isnull=True) | Q(alive_at__lt=now - STALE),
            operation__state=Operation.State.RUNNING,
        ).order_by("created_at")
        found = waiting.select_for_update(skip_locked=can_skip, of=("self",)).first()
        if found is None:
            return None
        found.attempt += 1
        found.alive_at = now
        found.save(update_fields=["attempt", "alive_at"])
    return found


def _run(export: Export) -> None:
    """Write one export; whatever goes wrong ends as its operation's message."""
    operation = export.operation_id
    if export.attempt > MOST_ATTEMPTS:
        _fail(export, f"It was begun {MOST_ATTEMPTS} times and never finished. Ask again later.")
        return
    try:
        rows = _write(export)
    except _TakenOver:
        log.warning("export_taken_over", export=export.pk, attempt=export.attempt)
    except OperationalError:
        raise  # the database is away: the claim goes stale and is taken anew
    except Rejected as rejected:
        _fail(export, " ".join(fault.message for fault in rejected.faults))
    except OSError as error:
        log.exception("export_not_written", export=export.pk)
        _fail(export, f"The file could not be written: {error.strerror or type(error).__name__}.")
    except Exception:
        log.exception("export_failed", export=export.pk, dataset=export.dataset)
        _fail(export, "It could not be written; the log of the worker says why.")
    else:
        if rows is not None:
            finish_operation(operation, message=f"{rows:,} rows.")
            tell_of_export(export)


def _fail(export: Export, message: str) -> None:
    finish_operation(export.operation_id, message=message, failed=True)
    tell_of_export(export)


def _write(export: Export) -> int | None:
    """Write the file and give it its name; None when another worker has taken over."""
    user = export.requested_by
    period = month_of(export.period, export.zone)
    tell = _teller(export)
    found = export_rows(user, export, period, advance=tell)
    table, cut = pick(found.table, export.columns)
    advance_operation(export.operation_id, step="Reading", total=found.total)
    shape = FORMATS[export.format]
    final = spool_path(export)
    final.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = final.with_suffix(f".{export.attempt}.part")
    try:
        with part.open("wb") as file:
            rows = shape.writer()(file, table, map(cut, found.rows), found.about)
        return _finish(export, found, rows, part, final, table)
    finally:
        part.unlink(missing_ok=True)


def _finish(
    export: Export, found: ExportRows, rows: int, part: Path, final: Path, table: Table
) -> int | None:
    now = utc_now()
    about = found.about.with_rows(
        rows, rate_cards=tuple(str(card) for card in sorted(found.rate_cards))
    )
    mine = Export.objects.filter(
        pk=export.pk, attempt=export.attempt, operation__state=Operation.State.RUNNING
    )
    digest = _sha256(part)
    size = part.stat().st_size
    with transaction.atomic():
        if not mine.select_for_update(of=("self",)).exists():
            return None
        part.replace(final)
        Export.objects.filter(pk=export.pk).update(
            about={**about.document(), "columns": list(table.names)},
            rows=rows,
            size=size,
            sha256=digest,
            scope=_scope(export),
            finished_at=now,
            expires_at=now + timedelta(days=settings.PORTAL_EXPORT_DAYS),
            alive_at=now,
        )
    return rows


def _scope(export: Export) -> list[int] | None:
    """Workspaces whose rows may be in the file; None: whoever sees everything."""
    user = export.requested_by
    if roles_of(user).sees_everything:
        return None
    rows = visible_workspaces(user, include_archived=True)
    if export.account:
        rows = rows.filter(account__slug=export.account)
    if export.workspace:
        rows = rows.filter(namespace=export.workspace)
    return sorted(rows.values_list("pk", flat=True))


def _teller(export: Export) -> Callable[[int], None]:
    """Tells the operation every two seconds, and that this worker is alive."""
    last = time.monotonic()

    def tell(facts: int) -> None:
        nonlocal last
        if facts % TELL_EVERY_FACTS or time.monotonic() - last < TELL_EVERY_S:
            return
        last = time.monotonic()
        advance_operation(export.operation_id, step="Writing", done=facts)
        mine = Export.objects.filter(pk=export.pk, attempt=export.attempt)
        if not mine.update(alive_at=utc_now()):
            raise _TakenOver

    return tell


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tell_of_export(export: Export) -> int:
    """Put the word of a file into the outbox, or that it could not be written.

    A webhook of an account is told of the files of that account; one of the whole platform only
    of files of people who see the whole platform. The file itself is not sent.

    Returns:
        How many are told; none for an export that somebody asked for by hand, who sees it.
    """
    if export.plan is None:
        return 0
    user = export.requested_by
    hooks = Q(account__slug=export.account) if export.account else Q(pk__in=[])
    if roles_of(user).sees_everything:
        hooks |= Q(account=None)
    addresses = [user.email] if user.email else []
    return put_into_outbox(hooks, addresses, export=export, next_at=utc_now())
