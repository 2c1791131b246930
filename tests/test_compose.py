"""What compose.yaml starts has no more rights than it needs."""

from __future__ import annotations

from pathlib import Path

import yaml

SERVICES = yaml.safe_load((Path(__file__).parents[1] / "compose.yaml").read_text())["services"]
OWNER, ROLE = "postgres://portal:", "postgres://portal_app:"


def test_only_the_migration_is_the_owner_of_the_tables():
    urls = {
        name: service["environment"]["DATABASE_URL"]
        for name, service in SERVICES.items()
        if "DATABASE_URL" in service.get("environment", {})
    }
    assert SERVICES["postgres"]["environment"]["POSTGRES_USER"] == "portal"
    assert urls.pop("migrate").startswith(OWNER)
    assert set(urls) == {"web", "worker", "shifts", "beat"}
    assert all(url.startswith(ROLE) for url in urls.values())


def test_nobody_but_the_migration_has_the_owners_password():
    told = {name for name, service in SERVICES.items() if "POSTGRES_PASSWORD" in str(service)}
    assert told == {"postgres", "migrate"}


def test_rights_are_given_after_each_migration():
    assert SERVICES["migrate"]["command"][-1].endswith(
        "&& python manage.py grant_rights portal_app"
    )
