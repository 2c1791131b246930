"""From now on each month has one name, in the digits of ASCII.

What was there before is not looked at: a month of another name, which earlier releases could make,
would hold up the upgrade.
"""

from __future__ import annotations

from django.db import migrations, models

from budgets.migrations._steps import AddCheckForNewRows


class Migration(migrations.Migration):

    dependencies = [
        ('budgets', '0004_room_for_open_hours'),
    ]

    operations = [
        AddCheckForNewRows(
            model_name='billingperiod',
            constraint=models.CheckConstraint(
                condition=models.Q(('name__regex', '^[0-9]{4}-[0-9]{2}$')),
                name='billing_period_named',
            ),
        ),
    ]
