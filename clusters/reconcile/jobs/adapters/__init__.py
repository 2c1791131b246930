"""Kinds of jobs that dispatch knows, behind one interface.

``adapter`` is the interface, ``batch_job`` the Job of Kubernetes itself, ``shapes`` everything that
a few paths describe, ``registry`` finds the adapter of a document. Pure: nothing here talks to a
cluster.
"""

from __future__ import annotations

from clusters.reconcile.jobs.adapters.adapter import Adapter
from clusters.reconcile.jobs.adapters.registry import JOBS_ONLY, Adapters, settings_of

__all__ = ["JOBS_ONLY", "Adapter", "Adapters", "settings_of"]
