"""A shift that answers the AdmissionCheck of spend rules."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("clusters", "0005_operating"),
    ]

    operations = [
        migrations.AlterField(
            model_name="shiftrun",
            name="role",
            field=models.CharField(
                choices=[
                    ("quota", "Quota"),
                    ("admission", "Admission"),
                    ("dispatch", "Dispatch"),
                    ("usage", "Usage"),
                    ("shadow", "Shadow"),
                    ("spend", "Spend"),
                ],
                max_length=10,
            ),
        ),
    ]
