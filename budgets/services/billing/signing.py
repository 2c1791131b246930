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

from budgets.models import BillingPeriod

PUBLIC = "public:"


def sign(period: BillingPeriod) -> str:
    """The signature of a month that is closed, in base64; empty where no key signs.

    Raises:
        ImproperlyConfigured: a key is none.
    """
    for key in _keys():
        if isinstance(key, Ed25519PrivateKey):
            return base64.b64encode(key.sign(_told(period))).decode()
    return ""


def is_signed(period: BillingPeriod) -> bool:
    """Whether one of the keys signed this month, with this number and this head.

    Raises:
        ImproperlyConfigured: a key is none.
    """
    try:
        signature = base64.b64decode(period.signature, validate=True)
    except ValueError:
        return False
    return any(_is_by(key, signature, _told(period)) for key in _keys())


def has_keys() -> bool:
    """Whether anything can be verified."""
    return bool(settings.PORTAL_LEDGER_KEYS)


def _told(period: BillingPeriod) -> bytes:
    parts = ("ledger", settings.PORTAL_INSTALLATION, period.close_number, period.name, period.zone)
    return "|".join(map(str, (*parts, period.head))).encode()


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
