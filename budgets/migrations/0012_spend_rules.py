"""Spend rules of budgets, broken glass, their effect, and alerts that follow them."""

import django.core.validators
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('budgets', '0011_long_queue_names'),
    ]

    operations = [
        migrations.AlterField(
            model_name='alertrule',
            name='measure',
            field=models.CharField(choices=[('spend', 'Money spent'), ('spend_forecast', 'Money, forecast to the end of the window'), ('hours', 'GPU-hours used'), ('hours_forecast', 'GPU-hours, forecast to the end of the window'), ('burst_share', 'Burst share of the use (%)'), ('idle_share', 'Idle share of the committed GPUs (%)'), ('pending_age', 'Longest wait of a pending job (hours)'), ('cap', 'Cap of a spend rule')], max_length=16),
        ),
        migrations.AlterField(
            model_name='alertrule',
            name='window',
            field=models.CharField(choices=[('day', 'day'), ('week', 'week'), ('month', 'month'), ('grant', 'whole grant')], default='month', max_length=5),
        ),
        migrations.CreateModel(
            name='SpendEffect',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('stop_policy', models.CharField(choices=[('None', 'Admitting'), ('Hold', 'Held: running jobs finish, nothing new starts'), ('HoldAndDrain', 'Drained: running jobs are stopped')], default='None', max_length=16)),
                ('floor_only', models.BooleanField(default=False)),
                ('reason', models.CharField(max_length=300)),
                ('since', models.DateTimeField()),
                ('budget', models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='spend_effect', to='budgets.budget')),
            ],
        ),
        migrations.CreateModel(
            name='SpendRule',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('unit', models.CharField(choices=[('gpu_hours', 'GPU-hours'), ('money', 'Money')], max_length=9)),
                ('amount', models.DecimalField(decimal_places=2, max_digits=18)),
                ('currency', models.CharField(blank=True, max_length=3)),
                ('window', models.CharField(choices=[('day', 'day'), ('week', 'week'), ('month', 'month'), ('grant', 'whole grant')], default='month', max_length=5)),
                ('grant_start', models.DateTimeField(blank=True, null=True)),
                ('grant_end', models.DateTimeField(blank=True, null=True)),
                ('counts', models.CharField(choices=[('above_floor', 'what goes beyond the floor'), ('everything', 'everything, the floor too')], default='above_floor', max_length=11)),
                ('action', models.CharField(choices=[('warn', 'Warn'), ('drop_to_floor', 'Drop the ceiling to the floor'), ('hold', 'Hold new jobs'), ('hold_and_drain', 'Hold new jobs, stop running ones')], default='warn', max_length=14)),
                ('grace_minutes', models.PositiveIntegerField(default=0, validators=[django.core.validators.MaxValueValidator(10080)])),
                ('warn_at_percent', models.PositiveSmallIntegerField(default=80, validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(100)])),
                ('is_platform', models.BooleanField(default=False)),
                ('reached_window', models.DateTimeField(blank=True, null=True)),
                ('reached_at', models.DateTimeField(blank=True, null=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('removed_at', models.DateTimeField(blank=True, null=True)),
                ('budget', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='spend_rules', to='budgets.budget')),
                ('created_by', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['budget', 'pk'],
            },
        ),
        migrations.CreateModel(
            name='BreakGlass',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('reason', models.CharField(max_length=500)),
                ('since', models.DateTimeField()),
                ('until', models.DateTimeField()),
                ('person', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('rule', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='break_glass', to='budgets.spendrule')),
            ],
            options={
                'ordering': ['-since', '-pk'],
            },
        ),
        migrations.AddField(
            model_name='alertrule',
            name='spend_rule',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='alert_rules', to='budgets.spendrule'),
        ),
        migrations.AddConstraint(
            model_name='alertrule',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('measure', 'cap'), ('spend_rule__isnull', False)), models.Q(models.Q(('measure', 'cap'), _negated=True), ('spend_rule__isnull', True), models.Q(('window', 'grant'), _negated=True)), _connector='OR'), name='alert_rule_cap_has_rule'),
        ),
        migrations.AddConstraint(
            model_name='spendeffect',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('stop_policy', 'None'), _negated=True), ('floor_only', True), _connector='OR'), name='spend_effect_does_something'),
        ),
        migrations.AddIndex(
            model_name='spendrule',
            index=models.Index(condition=models.Q(('removed_at', None)), fields=['budget'], name='spend_rule_in_force'),
        ),
        migrations.AddConstraint(
            model_name='spendrule',
            constraint=models.CheckConstraint(condition=models.Q(('amount__gt', 0)), name='spend_rule_above_zero'),
        ),
        migrations.AddConstraint(
            model_name='spendrule',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('grant_start__isnull', False), ('window', 'grant')), models.Q(models.Q(('window', 'grant'), _negated=True), ('grant_end__isnull', True), ('grant_start__isnull', True)), _connector='OR'), name='spend_rule_grant_begins'),
        ),
        migrations.AddConstraint(
            model_name='spendrule',
            constraint=models.CheckConstraint(condition=models.Q(('grant_end__isnull', True), ('grant_end__gt', models.F('grant_start')), _connector='OR'), name='spend_rule_grant_ends_later'),
        ),
        migrations.AddConstraint(
            model_name='spendrule',
            constraint=models.CheckConstraint(condition=models.Q(('action', 'hold_and_drain'), ('grace_minutes', 0), _connector='OR'), name='spend_rule_grace_of_draining'),
        ),
        migrations.AddConstraint(
            model_name='breakglass',
            constraint=models.CheckConstraint(condition=models.Q(('until__gte', models.F('since'))), name='break_glass_ends_later'),
        ),
    ]
