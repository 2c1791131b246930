"""Server entry."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
django.setup(set_prefix=False)

from portal.checks import require_settings  # noqa: E402  its modules need the line above

require_settings()
from portal import urls  # noqa: E402, F401  all pages now, and not with the first request
from portal.middleware import Handler  # noqa: E402

application = Handler()
