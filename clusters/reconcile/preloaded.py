"""What the process has in it from which those of the clusters are forked: the product, loaded once.

Imported there and nowhere else. What it has loaded is shared by all of them until one writes to it.
"""

from __future__ import annotations

import gc

import django

django.setup()

from clusters.reconcile.shift import load_bodies  # noqa: E402  models need the set-up before

load_bodies()
gc.collect()
gc.freeze()
