"""Closed months are signed with a key that the database does not hold.

Who can write to the database can work a whole chain of digests out anew, but no signature over its
head. ``PORTAL_LEDGER_KEYS`` lists keys, newest first: the first signs, all verify. A key is the
seed of an Ed25519 key (RFC 8032), 32 bytes in base64; ``public:`` before it says that it is the
public one, of a key that signs no more or of a place that only verifies.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from budgets.models import BillingPeriod, Seal

PUBLIC = "public:"
UNSIGNED = "nobody signed it"


def sign(told: bytes) -> str:
    """The signature of what a month or a seal tells, in base64; empty where no key signs.

    Raises:
        ImproperlyConfigured: a key is none.
    """
    for key in _keys():
        if isinstance(key, Ed25519PrivateKey):
            return base64.b64encode(key.sign(told)).decode()
    return ""


def signature_problem(told: bytes, row: BillingPeriod | Seal) -> str:
    """What is wrong with the signature of what a row tells; empty where there are no keys.

    Raises:
        ImproperlyConfigured: a key is none.
    """
    if not settings.PORTAL_LEDGER_KEYS:
        return ""
    if not row.signature:
        return UNSIGNED
    try:
        signature = base64.b64decode(row.signature, validate=True)
    except ValueError:
        signature = b""
    is_signed = any(_is_by(key, signature, told) for key in _keys())
    return "" if is_signed else "its signature is by none of the keys"


def told_of_month(period: BillingPeriod) -> bytes:
    """What the signature of a closed month is about."""
    return _told("ledger", period.close_number, period.name, period.zone, period.head)


def told_of_seal(seal: Seal) -> bytes:
    """What the signature of a seal is about."""
    return _told("seal", seal.number, seal.digest)


def _told(kind: str, *parts: object) -> bytes:
    return "|".join(map(str, (kind, settings.PORTAL_INSTALLATION, *parts))).encode()


def _is_by(key: Ed25519PrivateKey | Ed25519PublicKey, signature: bytes, told: bytes) -> bool:
    public = key.public_key() if isinstance(key, Ed25519PrivateKey) else key
    try:
        public.verify(signature, told)
    except InvalidSignature:
        return False
    return True


def _keys() -> Iterator[Ed25519PrivateKey | Ed25519PublicKey]:
    return map(_key, settings.PORTAL_LEDGER_KEYS)


@cache
def _key(text: str) -> Ed25519PrivateKey | Ed25519PublicKey:
    is_public = text.startswith(PUBLIC)
    try:
        raw = base64.b64decode(text.removeprefix(PUBLIC), validate=True)
        if is_public:
            return Ed25519PublicKey.from_public_bytes(raw)
        return Ed25519PrivateKey.from_private_bytes(raw)
    except ValueError:
        raise ImproperlyConfigured(
            "PORTAL_LEDGER_KEYS holds something that is not an Ed25519 key; make one with "
            "python -c 'import base64, secrets; "
            "print(base64.b64encode(secrets.token_bytes(32)).decode())'"
        ) from None
