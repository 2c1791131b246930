"""Seals what opens a cluster: kubeconfigs are stored only as MultiFernet tokens.

Of the cluster that the portal signs in to by its own service account nothing is stored but a mark,
which is no secret and needs no key. Nothing here logs, and no error quotes what it was given.
"""

from __future__ import annotations

from typing import Final

from cryptography.fernet import InvalidToken

from budgets.sealing import usable_keys
from clusters.errors import CredentialUnusable, Refusal

OWN_ACCOUNT: Final = b"own account"
"""Stands where a sealed kubeconfig stands, for the cluster that the portal runs in."""


class SealBroken(CredentialUnusable):
    """A sealed credential cannot be opened with any of the keys that are set."""

    default_reason = "CredentialNotReadable"

    def __init__(self, refusal: Refusal | str = "") -> None:
        super().__init__(
            refusal
            or "The stored credential cannot be opened with the keys in PORTAL_CREDENTIAL_KEYS. "
            "Add the key that sealed it, or renew the kubeconfig on the cluster's page."
        )


def seal(text: str) -> bytes:
    """Encrypt with the newest key.

    Raises:
        ImproperlyConfigured: No usable key is set.
    """
    return usable_keys().encrypt(text.encode())


def unseal(sealed: bytes | memoryview, *, max_age_s: int | None = None) -> str:
    """Decrypt with whichever key fits.

    Args:
        sealed: What `seal` gave.
        max_age_s: Seconds since then that are allowed; None for any.

    Raises:
        SealBroken: No key fits, the bytes were changed, or they are too old.
        ImproperlyConfigured: No usable key is set.
    """
    try:
        return usable_keys().decrypt(bytes(sealed), ttl=max_age_s).decode()
    except InvalidToken:
        raise SealBroken from None


def is_own_account(sealed: bytes | memoryview) -> bool:
    """Whether the portal's own service account opens it, so that there is nothing to unseal."""
    return bytes(sealed) == OWN_ACCOUNT


def is_readable(sealed: bytes | memoryview) -> bool:
    """Whether any key that is set opens it."""
    if is_own_account(sealed):
        return True
    try:
        return bool(unseal(sealed))
    except SealBroken:
        return False


def is_same(sealed: bytes, other: bytes) -> bool:
    """Whether two seals hold the same text, as before and after it was sealed with another key."""
    try:
        return sealed == other or unseal(sealed) == unseal(other)
    except SealBroken:
        return False


def reseal(sealed: bytes | memoryview) -> bytes:
    """Encrypt anew with the newest key, so that older ones can be taken away.

    Raises:
        SealBroken: No key fits.
    """
    if is_own_account(sealed):
        return OWN_ACCOUNT
    try:
        return usable_keys().rotate(bytes(sealed))
    except InvalidToken:
        raise SealBroken from None
