"""Every deed that moves money names two people; what was done before keeps who did it.

SQLite gets its triggers after each migrate (:mod:`budgets.models.triggers`).
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

FOLDER = Path(__file__).parent / "sql"
FIXED = ("budgets_ratecard", "budgets_adjustment")
# Model, its rows that moved money, who proposed and who decided, and the deed.
DONE = (
    ("RateCard", {"state": "active"}, "author", "decided_by", "rate_card.activate"),
    ("Adjustment", {"state": "approved"}, "proposed_by", "decided_by", "adjustment.approve"),
    ("Discrepancy", {"state": "accepted"}, "proposed_by", "decided_by", "discrepancy.accept"),
    ("Statement", {"state": "void"}, "issued_by", "credit_note__issued_by", "statement.void"),
)


def name_who_decided(apps, schema_editor) -> None:
    """Give every deed of before its approval; the content of the rows stays as it is."""
    approvals = apps.get_model("budgets", "Approval").objects
    is_postgres = schema_editor.connection.vendor == "postgresql"
    for table in FIXED if is_postgres else ():
        schema_editor.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
    for name, done, proposed, decided, deed in DONE:
        rows = apps.get_model("budgets", name).objects
        for key, author, approver in rows.filter(**done).values_list("pk", proposed, decided):
            # One who voided a statement did so alone, whoever had issued it.
            is_by_two = None not in (author, approver) and author != approver
            kind = "two" if is_by_two and name != "Statement" else "before"
            made = approvals.create(
                deed=deed, kind=kind, author_id=author, approver_id=approver
            )
            rows.filter(pk=key).update(approval=made)
            if name == "Statement":
                rows.filter(credits=key).update(approval=made)
    if is_postgres:
        schema_editor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    for table in FIXED if is_postgres else ():
        schema_editor.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def _run(schema_editor, name: str) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute((FOLDER / name).read_text(), params=None)


def create_triggers(apps, schema_editor) -> None:
    _run(schema_editor, "four_eyes.sql")


def remove_triggers(apps, schema_editor) -> None:
    _run(schema_editor, "four_eyes_reverse.sql")


class Migration(migrations.Migration):

    dependencies = [
        ('budgets', '0008_unwatched_time'),
    ]

    operations = [
        migrations.CreateModel(
            name='Approval',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('deed', models.CharField(max_length=40)),
                ('kind', models.CharField(choices=[('two', 'Two people'), ('one', 'One person who runs everything alone'), ('before', 'Done before two people were asked for')], max_length=6)),
                ('at', models.DateTimeField(auto_now_add=True)),
            ],
            options={
                'ordering': ['-pk'],
            },
        ),
        migrations.CreateModel(
            name='Installation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('price_tolerance', models.DecimalField(decimal_places=2, default=Decimal('10'), max_digits=5)),
                ('one_person_since', models.DateTimeField(blank=True, null=True)),
                ('one_person_until', models.DateTimeField(blank=True, null=True)),
            ],
        ),
        migrations.CreateModel(
            name='Proposal',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('deed', models.CharField(max_length=40)),
                ('subject', models.CharField(max_length=200)),
                ('parameters', models.JSONField()),
                ('seen', models.JSONField()),
                ('reason', models.CharField(blank=True, max_length=500)),
                ('state', models.CharField(choices=[('waiting', 'Waiting for approval'), ('approved', 'Approved'), ('declined', 'Declined'), ('withdrawn', 'Withdrawn'), ('expired', 'Expired')], default='waiting', max_length=9)),
                ('proposed_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('decided_at', models.DateTimeField(blank=True, null=True)),
                ('decision_reason', models.CharField(blank=True, max_length=500)),
                ('outcome', models.CharField(blank=True, max_length=300)),
            ],
            options={
                'ordering': ['-pk'],
            },
        ),
        migrations.RemoveConstraint(
            model_name='adjustment',
            name='adjustment_four_eyes',
        ),
        migrations.RemoveConstraint(
            model_name='delivery',
            name='delivery_of_one_thing',
        ),
        migrations.RemoveConstraint(
            model_name='discrepancy',
            name='discrepancy_four_eyes',
        ),
        migrations.AddField(
            model_name='budgetrevision',
            name='is_dated_back',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='delivery',
            name='entry',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='deliveries', to='budgets.auditentry'),
        ),
        migrations.AddField(
            model_name='exchangerate',
            name='off_by',
            field=models.DecimalField(blank=True, decimal_places=4, default=0, max_digits=12, null=True),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name='exchangerate',
            name='tolerance',
            field=models.DecimalField(decimal_places=2, default=0, max_digits=5),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name='spotprice',
            name='off_by',
            field=models.DecimalField(blank=True, decimal_places=4, default=0, max_digits=12, null=True),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name='spotprice',
            name='tolerance',
            field=models.DecimalField(decimal_places=2, default=0, max_digits=5),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name='user',
            name='approves_from',
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.UniqueConstraint(fields=('entry', 'channel', 'address'), name='delivery_of_entry_once'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('alert__isnull', False), ('entry__isnull', True), ('export__isnull', True), ('period__isnull', True)), models.Q(('alert__isnull', True), ('entry__isnull', True), ('export__isnull', False), ('period__isnull', True)), models.Q(('alert__isnull', True), ('entry__isnull', True), ('export__isnull', True), ('period__isnull', False)), models.Q(('alert__isnull', True), ('entry__isnull', False), ('export__isnull', True), ('period__isnull', True)), _connector='OR'), name='delivery_of_one_thing'),
        ),
        migrations.AddField(
            model_name='approval',
            name='approver',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='approval',
            name='author',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='adjustment',
            name='approval',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='budgets.approval'),
        ),
        migrations.AddField(
            model_name='budgetrevision',
            name='approval',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='budgets.approval'),
        ),
        migrations.AddField(
            model_name='discrepancy',
            name='approval',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='budgets.approval'),
        ),
        migrations.AddField(
            model_name='exchangerate',
            name='approval',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='budgets.approval'),
        ),
        migrations.AddField(
            model_name='ratecard',
            name='approval',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='budgets.approval'),
        ),
        migrations.AddField(
            model_name='spotprice',
            name='approval',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='budgets.approval'),
        ),
        migrations.AddField(
            model_name='statement',
            name='approval',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='budgets.approval'),
        ),
        migrations.RunPython(name_who_decided, migrations.RunPython.noop, elidable=False),
        migrations.AddConstraint(
            model_name='adjustment',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'approved'), _negated=True), ('approval__isnull', False), _connector='OR'), name='adjustment_four_eyes'),
        ),
        migrations.AddConstraint(
            model_name='budgetrevision',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('is_dated_back', True), _negated=True), ('approval__isnull', False), _connector='OR'), name='revision_dated_back_is_approved'),
        ),
        migrations.AddConstraint(
            model_name='discrepancy',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'accepted'), _negated=True), ('approval__isnull', False), _connector='OR'), name='discrepancy_four_eyes'),
        ),
        migrations.AddConstraint(
            model_name='exchangerate',
            constraint=models.CheckConstraint(condition=models.Q(('approval__isnull', False), models.Q(('off_by__isnull', False), ('off_by__lte', models.F('tolerance'))), _connector='OR'), name='exchange_rate_near_or_approved'),
        ),
        migrations.AddConstraint(
            model_name='ratecard',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'active'), _negated=True), ('approval__isnull', False), _connector='OR'), name='rate_card_active_is_approved'),
        ),
        migrations.AddConstraint(
            model_name='spotprice',
            constraint=models.CheckConstraint(condition=models.Q(('approval__isnull', False), models.Q(('off_by__isnull', False), ('off_by__lte', models.F('tolerance'))), _connector='OR'), name='spot_price_near_or_approved'),
        ),
        migrations.AddConstraint(
            model_name='statement',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'void'), _negated=True), ('approval__isnull', False), _connector='OR'), name='statement_void_is_approved'),
        ),
        migrations.AddConstraint(
            model_name='statement',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('kind', 'credit_note'), _negated=True), ('approval__isnull', False), _connector='OR'), name='credit_note_is_approved'),
        ),
        migrations.AddField(
            model_name='installation',
            name='approval',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='budgets.approval'),
        ),
        migrations.AddField(
            model_name='proposal',
            name='approval',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='budgets.approval'),
        ),
        migrations.AddField(
            model_name='proposal',
            name='decided_by',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='proposal',
            name='proposed_by',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddConstraint(
            model_name='approval',
            constraint=models.CheckConstraint(condition=models.Q(('kind', 'before'), models.Q(('approver__isnull', False), ('author__isnull', False), models.Q(models.Q(('kind', 'two'), models.Q(('author', models.F('approver')), _negated=True)), models.Q(('author', models.F('approver')), ('kind', 'one')), _connector='OR')), _connector='OR'), name='approval_of_two_people'),
        ),
        migrations.AddConstraint(
            model_name='installation',
            constraint=models.CheckConstraint(condition=models.Q(('pk', 1)), name='installation_is_one'),
        ),
        migrations.AddConstraint(
            model_name='installation',
            constraint=models.CheckConstraint(condition=models.Q(('price_tolerance', Decimal('10')), ('approval__isnull', False), _connector='OR'), name='installation_tolerance_approved'),
        ),
        migrations.AddConstraint(
            model_name='installation',
            constraint=models.CheckConstraint(condition=models.Q(('price_tolerance__gte', 0), ('price_tolerance__lte', 100)), name='installation_tolerance_range'),
        ),
        migrations.AddConstraint(
            model_name='installation',
            constraint=models.CheckConstraint(condition=models.Q(('one_person_until__isnull', True), models.Q(('one_person_since__isnull', False), ('one_person_until__gte', models.F('one_person_since'))), _connector='OR'), name='installation_one_person_begins'),
        ),
        migrations.AddIndex(
            model_name='proposal',
            index=models.Index(condition=models.Q(('state', 'waiting')), fields=['expires_at'], name='proposal_waiting'),
        ),
        migrations.AddConstraint(
            model_name='proposal',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('state', 'approved'), _negated=True), ('approval__isnull', False), _connector='OR'), name='proposal_approved_by_two'),
        ),
        migrations.AddConstraint(
            model_name='proposal',
            constraint=models.CheckConstraint(condition=models.Q(('state', 'expired'), _negated=True), name='proposal_expiry_not_stored'),
        ),
        migrations.RunPython(create_triggers, remove_triggers, elidable=False),
    ]
