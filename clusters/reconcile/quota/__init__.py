"""Quota sync: what is promised becomes objects on one cluster, and stays so.

``wanted`` reads promises and renders them, ``image`` watches what the cluster carries, ``decide``
compares the two (pure), ``write`` carries out, ``record`` tells the database, ``secrets`` hands the
workers' kubeconfigs to the manager, ``body`` is the loop.
"""

from __future__ import annotations

from clusters.reconcile.quota.body import QuotaBody

__all__ = ["QuotaBody"]
