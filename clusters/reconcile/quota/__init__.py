"""Quota sync: what is promised becomes objects on one cluster, and stays so.

``wanted`` reads promises and renders them, ``decide`` compares them with what the cluster carries
(pure), ``record`` tells the database, ``secrets`` hands the workers' kubeconfigs to the manager,
``body`` is the role.
"""

from __future__ import annotations

from clusters.reconcile.quota.body import QuotaBody
