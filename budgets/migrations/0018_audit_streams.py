import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('budgets', '0017_company_accounts'),
    ]

    operations = [
        migrations.CreateModel(
            name='AuditStream',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('receiver', models.CharField(max_length=40, unique=True)),
                ('position', models.BigIntegerField(default=0)),
                ('missing', models.JSONField(blank=True, default=list)),
                ('turn', models.PositiveBigIntegerField(default=0)),
                ('failures', models.PositiveIntegerField(default=0)),
                ('next_at', models.DateTimeField()),
                ('sent_at', models.DateTimeField(blank=True, null=True)),
                ('problem', models.CharField(blank=True, max_length=300)),
                ('webhook', models.OneToOneField(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='stream', to='budgets.webhook')),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
    ]
