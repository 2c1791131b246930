"""A Workload says when its raw events were taken away."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0002_own_queue'),
    ]

    operations = [
        migrations.AddField(
            model_name='workloadstate',
            name='events_retired_at',
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
    ]
