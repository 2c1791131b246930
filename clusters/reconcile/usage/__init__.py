"""Usage: raw events of Workloads first, then states for pages and intervals for the meter."""

from __future__ import annotations

from clusters.reconcile.usage.body import UsageBody
