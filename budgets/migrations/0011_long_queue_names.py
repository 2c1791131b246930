"""Kueue's own limit for the names of ClusterQueues and ResourceFlavors: 253 characters."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("budgets", "0010_month_outlook")]
    operations = [
        migrations.AlterField(
            model_name="interval", name="flavor", field=models.CharField(max_length=253)
        ),
        migrations.AlterField(
            model_name="interval",
            name="cluster_queue",
            field=models.CharField(blank=True, max_length=253),
        ),
    ]
