"""Settings of the test run: the portal's own, with fixed keys and cheap passwords."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

os.environ.setdefault("PORTAL_SECRET_KEY", "test-only-" + "k" * 50)
os.environ.setdefault("PORTAL_CREDENTIAL_KEYS", "dGVzdC1vbmx5LWtleS10ZXN0LW9ubHkta2V5LTEyMzQ=")
os.environ.setdefault("DATABASE_URL", "sqlite://:memory:")
os.environ.setdefault("CELERY_BROKER_URL", "memory://")
os.environ.setdefault("PORTAL_HTTPS", "false")
os.environ.setdefault("PORTAL_CLUSTER_LOOPBACK", "true")
os.environ.setdefault("SHIFT_MEMORY_MB", "0")

from portal.settings import *  # noqa: F403  the tests change a few of the portal's own

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
WHITENOISE_AUTOREFRESH = True

# A file, in memory where the machine has such a folder: the threads of a database in memory share
# one cache, where a reader that meets a writer fails at once ("table is locked") and never waits.
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":  # noqa: F405
    _shared_memory = Path("/dev/shm")
    _folder = _shared_memory if os.access(_shared_memory, os.W_OK) else Path(tempfile.gettempdir())
    DATABASES["default"]["TEST"] = {  # noqa: F405
        "NAME": str(_folder / f"portal-tests-{os.getpid()}.sqlite3")
    }
