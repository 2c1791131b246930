"""Admission in ``portal`` mode: Workloads for Jobs, quota, start and stop, statuses of queues.

``plan`` says what one workload needs, ``status`` and ``steps`` build its writes, ``events`` what
people are told of them (all pure); ``decided`` keeps the engine's decisions until they are written,
``pace`` says when cycles run and when what can wait is told, ``body`` is the controller.
"""

from __future__ import annotations

from clusters.reconcile.admission.body import AdmissionBody
