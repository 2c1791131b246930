"""A single cluster that became a manager keeps a queue of its own."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='cluster',
            name='own_queue',
            field=models.CharField(blank=True, choices=[('', 'No second queue'), ('open', 'Runs jobs itself'), ('held', 'Starts no jobs itself')], db_default='', default='', max_length=4),
        ),
    ]
