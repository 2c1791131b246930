"""Indexes on the few rows that the pages of lending and capacity look for."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("budgets", "0008_alerts"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="interval",
            index=models.Index(
                condition=models.Q(("kind__in", ["race", "reserved", "undecided", "outside"])),
                fields=["start"],
                name="interval_unbilled",
            ),
        ),
        migrations.AddIndex(
            model_name="usagerecord",
            index=models.Index(
                condition=models.Q(("lent__gt", 0), ("borrowed__gt", 0), _connector="OR"),
                fields=["hour"],
                name="usage_moved",
            ),
        ),
    ]
