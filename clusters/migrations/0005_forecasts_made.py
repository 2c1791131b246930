"""Forecasts of a start are noted, with what became of them."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('clusters', '0004_raw_events_kept'),
    ]

    operations = [
        migrations.CreateModel(
            name='ForecastMade',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('cluster', models.CharField(max_length=40)),
                ('uid', models.CharField(max_length=64)),
                ('made_at', models.DateTimeField()),
                ('low_s', models.PositiveIntegerField()),
                ('high_s', models.PositiveIntegerField()),
                ('earliest', models.DateTimeField()),
                ('latest', models.DateTimeField()),
                ('coverage_percent', models.PositiveSmallIntegerField()),
                ('waited_s', models.PositiveIntegerField(blank=True, null=True)),
                ('has_held', models.BooleanField(blank=True, null=True)),
            ],
            options={
                'indexes': [models.Index(fields=['cluster', 'latest'], name='forecast_made_by_end')],
                'constraints': [models.UniqueConstraint(fields=('cluster', 'uid'), name='forecast_made_once')],
            },
        ),
    ]
