"""Several processes may run beat; the lease says which one of them sends."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("clusters", "0008_words_of_incidents")]

    operations = [
        migrations.CreateModel(
            name="BeatLease",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("holder", models.CharField(max_length=300)),
                ("renewed_at", models.DateTimeField()),
            ],
            options={
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("pk", 1)), name="beat_lease_only_one"
                    )
                ]
            },
        )
    ]
