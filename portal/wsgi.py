"""Server entry: everything is loaded before the first request, and is there to stay."""

from __future__ import annotations

import gc
import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
django.setup(set_prefix=False)

from portal.checks import require_settings  # noqa: E402  its modules need the line above

require_settings()
from portal import urls  # noqa: E402, F401  all pages now, and not with the first request
from portal.middleware import Handler  # noqa: E402

application = Handler()
# A page that the collector interrupts would wait until it has looked at all of that: 0.15 s.
gc.collect()
gc.freeze()
