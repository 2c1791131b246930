"""What compose.yaml starts has no more rights than it needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
SERVICES = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
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


PRESET = {
    "PORTAL_DEBUG": "never in production",
    "PORTAL_DEMO": "the demo has its own processes",
    "CELERY_FILESYSTEM_FOLDER": "the broker is Redis",
    "PORTAL_STATIC_ROOT": "a folder of the image",
    "PORTAL_SPOOL_FOLDER": "the volume of the image",
    "PORTAL_OWN_CLUSTER_FOLDER": "nothing here runs in a cluster",
    "PORTAL_OWN_CLUSTER_ADDRESS": "nothing here runs in a cluster",
}
"""Settings that nobody gives here, and why."""


@pytest.mark.parametrize("name", ["migrate", "web", "worker", "shifts", "beat"])
def test_every_setting_reaches_each_process(name: str):
    table = re.findall(r"^\| `([A-Z_]+)` \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    given = SERVICES[name]["environment"]
    assert set(table) - set(given) == set(PRESET)
    # A name without a value is handed on, and one that nobody gave stays away: an empty text would
    # be a number or an answer that cannot be read.
    assert [key for key, value in given.items() if value is not None and ":-}" in value] == [
        "PORTAL_CSRF_TRUSTED_ORIGINS"
    ]
    assert SERVICES[name]["env_file"] == [{"path": "oidc.env", "required": False}]
