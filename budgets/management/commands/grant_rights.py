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
        "Give a role that owns nothing what the portal needs, and no more: it cannot change, "
        f"delete or empty the ledger. The role is made when it is missing; {PASSWORD} is its "
        "password."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The role's name."""
        parser.add_argument("role", help="such as portal_app")

    def handle(self, *args: Any, role: str, **options: Any) -> None:
        """Make the role and give it its rights, in one transaction."""
        if connection.vendor != "postgresql":
            raise CommandError("Only PostgreSQL has roles; DATABASE_URL names another database.")
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
                    f"{role} owns tables, is a member of another role or may do more than log in; "
                    "name another role."
                )
            if password := os.environ.get(PASSWORD):
                cursor.execute(f"ALTER ROLE {name} PASSWORD %s", [password])
            for statement in grants(name):
                cursor.execute(statement)
        self.stdout.write(self.style.SUCCESS(f"{role} has the portal's rights."))
