"""Filters of lists that people keep under a name."""

from __future__ import annotations

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("budgets", "0019_words_of_choices")]

    operations = [
        migrations.CreateModel(
            name="SavedView",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "page",
                    models.CharField(choices=[("jobs", "Jobs"), ("usage", "Usage")], max_length=16),
                ),
                ("name", models.CharField(max_length=60)),
                ("query", models.CharField(blank=True, max_length=2000)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="saved_views",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["page", "name"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "page", "name"),
                        name="saved_view_name_once",
                        violation_error_message="You already have a view of this page with that "
                        "name. Choose another name, or delete that view first.",
                    )
                ],
            },
        ),
    ]
