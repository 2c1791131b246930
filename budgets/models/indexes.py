"""Kinds of index that one database has and another one does without."""

from __future__ import annotations

from typing import Any

from django.contrib.postgres.indexes import BrinIndex
from django.db.models import Index


class TimeIndex(BrinIndex):
    """Finds rows of a span of time in a table that grows in the order of time.

    On PostgreSQL it knows of each range of pages only which times are in it (BRIN), so it costs a
    writer next to nothing; other databases have an ordinary index in its place.
    """

    def create_sql(self, model: Any, schema_editor: Any, using: str = "", **kwargs: Any) -> Any:
        """The statement that makes it."""
        if schema_editor.connection.vendor == "postgresql":
            return super().create_sql(model, schema_editor, using=using, **kwargs)
        return Index.create_sql(self, model, schema_editor, using=using, **kwargs)
