"""The keys that seal what opens something: kubeconfigs, and the secrets of second factors.

Nothing here logs, and no error quotes a key.
"""

from __future__ import annotations

from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured


def usable_keys() -> MultiFernet:
    """What the keys that are set make together.

    Raises:
        ImproperlyConfigured: One of them is none, or there is none; with the way out.
    """
    try:
        keys = [Fernet(key) for key in settings.PORTAL_CREDENTIAL_KEYS]
    except ValueError:
        raise ImproperlyConfigured(
            "PORTAL_CREDENTIAL_KEYS holds something that is not a Fernet key; make one with "
            "python -c 'from cryptography.fernet import Fernet; "
            "print(Fernet.generate_key().decode())'"
        ) from None
    if not keys:
        raise ImproperlyConfigured(
            "PORTAL_CREDENTIAL_KEYS is empty: without a key no credential can be stored."
        )
    return MultiFernet(keys)
