"""Addresses that are told, and how a message to them is signed."""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils.crypto import salted_hmac

from budgets.addresses import has_port, parts_of
from budgets.errors import Fault, Rejected
from budgets.models import Account, AuditEntry, AuditStream, Delivery, User, Webhook
from budgets.selectors.clock import utc_now
from budgets.services.alerts.posting import PostFailed, post
from budgets.services.audit import audit
from budgets.services.guards import require_office, save_checked

SIGNATURE = "Portal-Signature"
DELIVERY = "Portal-Delivery"
DEED = "change webhooks"


@transaction.atomic
def create_webhook(
    actor: User | None,
    *,
    name: str,
    url: str,
    account: Account | None = None,
    takes_audit_log: bool = False,
) -> tuple[Webhook, str]:
    """Add an address that is told of an account's alerts; of all when ``account`` is None.

    Args:
        actor: Who answers for it.
        name: For people.
        url: Where it is.
        account: Whose alerts.
        takes_audit_log: It is sent the whole audit log instead, from its first entry on.

    Returns:
        The row and its signing key, which is shown this once.

    Raises:
        Rejected: The address is unusable, or the log of one account is asked for.
    """
    require_office(actor, deed=DEED)
    faults = address_faults(url)
    if takes_audit_log and account is not None:
        words = "The audit log is sent as a whole; choose every account."
        faults.append(Fault("account", "whole_log", words))
    webhook = Webhook(name=name, url=url, account=account, created_by=actor)
    save_checked(webhook, also=faults)
    if takes_audit_log:
        receiver = f"webhook-{webhook.pk}"
        AuditStream.objects.create(receiver=receiver, webhook=webhook, next_at=utc_now())
    _audit(actor, webhook, "webhook.create")
    return webhook, signing_key(webhook)


@transaction.atomic
def rotate_webhook(actor: User | None, *, webhook: Webhook) -> str:
    """Sign with a new key from now on; returns it, this once. Who does it answers for it now."""
    require_office(actor, deed=DEED)
    webhook.key_version += 1
    webhook.created_by = actor
    webhook.save(update_fields=["key_version", "created_by"])
    _audit(actor, webhook, "webhook.rotate")
    return signing_key(webhook)


@transaction.atomic
def remove_webhook(actor: User | None, *, webhook: Webhook) -> None:
    """Tell it nothing more; what was delivered stays in the log."""
    require_office(actor, deed=DEED)
    if webhook.removed_at is None:
        webhook.removed_at = utc_now()
        webhook.save(update_fields=["removed_at"])
        _audit(actor, webhook, "webhook.remove")


def test_webhook(actor: User | None, *, webhook: Webhook) -> None:
    """Send a message that says that it is a test.

    Raises:
        Rejected: It did not arrive; the fault says why.
    """
    require_office(actor, deed=DEED)
    now = utc_now()
    body = {"kind": "test", "text": "A test of the GPU budget portal.", "sent_at": now.isoformat()}
    try:
        send(webhook, body, delivery=f"test-{webhook.pk}-{int(now.timestamp())}", now=now)
    except PostFailed as failed:
        words = f"The test did not arrive: {failed}"
        raise Rejected.because("url", "not_delivered", words) from failed


def send(webhook: Webhook, body: dict[str, Any], *, delivery: str, now: datetime) -> None:
    """POST a signed JSON message.

    The signature is ``t=SECONDS,v1=HEX``: HMAC-SHA256 of ``SECONDS.BODY``, so that a receiver can
    refuse what is old or changed; ``Portal-Delivery`` is the same in every attempt.

    Raises:
        PostFailed: It did not arrive.
    """
    text = json.dumps(body, separators=(",", ":"), sort_keys=True).encode()
    seconds = str(int(now.timestamp()))
    digest = hmac.new(signing_key(webhook).encode(), seconds.encode() + b"." + text, sha256)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "gpu-budget-portal",
        SIGNATURE: f"t={seconds},v1={digest.hexdigest()}",
        DELIVERY: delivery,
    }
    post(webhook.url, text, headers=headers, allows_private=settings.PORTAL_WEBHOOK_PRIVATE)


def tell_by_mail(addresses: Iterable[str], entry: AuditEntry) -> None:
    """Have a log entry told to people, now and once to each; of no address nothing is said."""
    put_into_outbox(Q(pk__in=[]), sorted({*addresses} - {""}), entry=entry, next_at=utc_now())


def put_into_outbox(hooks: Q, addresses: Iterable[str], **told: Any) -> int:
    """Have something told to webhooks and by mail, once to each.

    Args:
        hooks: Which webhooks, of those that are there.
        addresses: Of mail.
        **told: What, and from when on, as of :class:`Delivery`.

    Returns:
        How many are told.
    """
    channel = Delivery.Channel
    rows = [Delivery(channel=channel.MAIL, address=address, **told) for address in addresses]
    rows += [
        Delivery(channel=channel.WEBHOOK, address=f"webhook:{hook.pk}", webhook=hook, **told)
        for hook in Webhook.objects.filter(hooks, removed_at=None, stream=None)
    ]
    Delivery.objects.bulk_create(rows, ignore_conflicts=True)
    return len(rows)


def signing_key(webhook: Webhook) -> str:
    """The key of a stored webhook; it follows from the portal's key and is stored nowhere."""
    return salted_hmac(
        "budgets.webhook", f"{webhook.pk}:{webhook.key_version}", algorithm="sha256"
    ).hexdigest()


def address_faults(url: str) -> list[Fault]:
    """Why an address cannot be used; whether it resolves to a public one is asked when sending."""
    parts = parts_of(url)
    if not parts.scheme:
        words = f"{url[:80]!r} is not an address. Write it like https://example.org/alerts."
        return [Fault("url", "not_an_address", words)]
    faults = []
    if parts.scheme != "https" and not (parts.scheme == "http" and settings.PORTAL_WEBHOOK_PRIVATE):
        words = "Only https is used, so that nobody reads or changes the message on its way."
        faults.append(Fault("url", "not_https", words))
    if parts.username or parts.password:
        words = "Leave name and password out; the message is signed instead."
        faults.append(Fault("url", "credentials_in_url", words))
    if not parts.hostname:
        faults.append(Fault("url", "no_host", f"{url[:80]!r} names no host."))
    if not has_port(parts):
        words = (
            f"{url[:80]!r} names a port that does not exist. Write one from 1 to 65535, or none."
        )
        faults.append(Fault("url", "no_port", words))
    return faults


def _audit(actor: User | None, webhook: Webhook, action: str) -> None:
    audit(
        actor,
        action,
        webhook,
        after={
            "name": webhook.name,
            "host": parts_of(webhook.url).hostname or "",
            "takes_audit_log": webhook.takes_audit_log,
        },
    )
