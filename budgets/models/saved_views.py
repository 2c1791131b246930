"""Filters of lists that a person keeps under a name."""

from __future__ import annotations

from django.db import models

from budgets.models.access import User


class SavedView(models.Model):
    """What of a list one person wants to see again; nobody else sees it.

    ``query`` is the query of the page's address: parameters that the page knows, as its own form
    took them. That form reads it again whenever it is opened, for what its reader may see then.
    Written by :mod:`budgets.services.saved_views`.
    """

    class Page(models.TextChoices):
        """The names of the routes of these pages."""

        JOBS = "jobs", "Jobs"
        USAGE = "usage", "Usage"

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="saved_views")
    page = models.CharField(max_length=16, choices=Page.choices)
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=2000, blank=True)

    class Meta:
        ordering = ["page", "name"]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "page", "name"],
                name="saved_view_name_once",
                violation_error_message="You already have a view of this page with that name. "
                "Choose another name, or delete that view first.",
            )
        ]
