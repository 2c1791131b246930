"""Give the portal's role in PostgreSQL its rights; the owner of the tables runs it."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction

from budgets.models.rights import grants

PASSWORD = "PORTAL_DATABASE_PASSWORD"  # noqa: S105  the name of a variable


class Command(BaseCommand):
    """After each migrate: new tables have no rights yet."""

    help = (
        "On PostgreSQL, give a role that owns nothing the rights that the portal needs and no "
        "others: it cannot change, delete or empty the ledger. The owner of the tables runs this "
        f"after each migrate. A missing role is created, with the password in {PASSWORD}."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The role's name."""
        parser.add_argument("role", help="name of the role, such as portal_app")

    def handle(self, *args: Any, role: str, **options: Any) -> None:
        """Make the role and give it its rights, in one transaction."""
        if connection.vendor != "postgresql":
            raise CommandError(
                "Only PostgreSQL has roles, and DATABASE_URL names another database. Give it the "
                "address of the PostgreSQL database, as the owner of its tables."
            )
        name = connection.ops.quote_name(role)
        with transaction.atomic(), connection.cursor() as cursor:
            # Beside another one of these, which may make the role first.
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext('grant_rights'))")
            cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role])
            if cursor.fetchone() is None:
                # Roles are the server's, and the lock is the database's: another one may be first.
                cursor.execute(
                    f"DO $made$ BEGIN CREATE ROLE {name} LOGIN NOINHERIT; "
                    "EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $made$"
                )
            cursor.execute(
                "SELECT rolsuper OR rolcreaterole OR rolbypassrls OR rolreplication OR EXISTS ("
                "SELECT 1 FROM pg_class WHERE relowner = pg_roles.oid) OR EXISTS ("
                "SELECT 1 FROM pg_auth_members WHERE member = pg_roles.oid)"
                " FROM pg_roles WHERE rolname = %s",
                [role],
            )
            if cursor.fetchone() != (False,):
                raise CommandError(
                    f"{role} owns tables, is a member of another role or may do more than log in, "
                    "so the portal's rights would not limit it. Name another role."
                )
            if password := os.environ.get(PASSWORD):
                cursor.execute(f"ALTER ROLE {name} PASSWORD %s", [password])
            for statement in grants(name):
                cursor.execute(statement)
        self.stdout.write(self.style.SUCCESS(f"{role} now has the portal's rights."))
