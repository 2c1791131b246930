"""The words of an incident's state say what became of it; no column changes."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("clusters", "0007_node_sights")]

    operations = [
        migrations.AlterField(
            model_name="guardincident",
            name="state",
            field=models.CharField(
                choices=[
                    ("open", "Not cured yet"),
                    ("cured", "Cured by the portal"),
                    ("passed", "Ended without the portal"),
                ],
                default="open",
                max_length=6,
            ),
        ),
    ]
