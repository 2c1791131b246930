"""Server entry."""

from __future__ import annotations

import os

import django
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
django.setup(set_prefix=False)

from portal.checks import require_settings  # noqa: E402  its modules need the line above

require_settings()
from portal import urls  # noqa: E402, F401  all pages now, and not with the first request

application = get_wsgi_application()
