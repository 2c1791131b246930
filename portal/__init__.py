"""Faces of the product: pages, API and wiring; no arithmetic."""

from __future__ import annotations

from portal.celery import app as celery_app
