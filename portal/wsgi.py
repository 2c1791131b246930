"""Server entry."""

from __future__ import annotations

import os

from django.core.exceptions import ImproperlyConfigured
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
application = get_wsgi_application()
if not os.environ.get("PORTAL_SECRET_KEY"):
    raise ImproperlyConfigured(
        "PORTAL_SECRET_KEY is not set; make one with: python -c 'import secrets; "
        "print(secrets.token_urlsafe(48))'"
    )
