"""Admission in ``portal`` mode: Workloads for Jobs, quota, start and stop, statuses of queues.

``image`` holds what the cluster has, ``plan`` says what one workload needs (pure), ``decided``
keeps the engine's decisions until they are written, ``status`` builds the patches (pure),
``outbox`` sends them, ``body`` is the loop.
"""

from __future__ import annotations

from clusters.reconcile.admission.body import AdmissionBody

__all__ = ["AdmissionBody"]
