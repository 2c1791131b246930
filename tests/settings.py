"""Settings of the test run: the portal's own, with fixed keys and cheap passwords."""

from __future__ import annotations

import os

os.environ.setdefault("PORTAL_SECRET_KEY", "test-only-" + "k" * 50)
os.environ.setdefault("PORTAL_CREDENTIAL_KEYS", "dGVzdC1vbmx5LWtleS10ZXN0LW9ubHkta2V5LTEyMzQ=")
os.environ.setdefault("DATABASE_URL", "sqlite://:memory:")
os.environ.setdefault("CELERY_BROKER_URL", "memory://")

from portal.settings import *  # noqa: F403  the tests change a few of the portal's own

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
WHITENOISE_AUTOREFRESH = True
