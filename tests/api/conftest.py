"""People with tokens of the API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.db import transaction
from rest_framework.response import Response
from rest_framework.test import APIClient

from budgets import services
from budgets.models import Role, User
from tests.builders import PASSWORD, SmallFleet, small_fleet

API = "/api/v1/"
ROLES = (
    "admin",
    "finance",
    "auditor",
    "owner",
    "account_owner",
    "viewer",
    "stranger",
    "nobody",
    "anonymous",
)


def client_of(user: User | None, *, scope: str = "write") -> APIClient:
    """A client with a fresh token, or none."""
    client = APIClient()
    if user is not None:
        _, text = services.create_api_token(
            None,
            user=user,
            name="test",
            scope=scope,
            expires_at=services.utc_now() + timedelta(days=1),
        )
        client.credentials(HTTP_AUTHORIZATION=f"Token {text}")
    return client


@dataclass
class People:
    """One user and client per role; ``stranger`` owns the other account."""

    fleet: SmallFleet
    users: Mapping[str, User | None]
    clients: dict[str, APIClient] = field(default_factory=dict)

    def __getitem__(self, role: str) -> APIClient:
        if role not in self.clients:
            self.clients[role] = client_of(self.users[role])
        return self.clients[role]

    def in_session(self, role: str) -> APIClient:
        """A client that signed in as a browser does: people and roles are changed so alone."""
        client, user = APIClient(), self.users[role]
        if user is not None:
            client.force_login(User.objects.get(pk=user.pk))
        return client

    def send(self, role: str, method: str, path: str, body: Any = None, **headers: str) -> Response:
        """A request with a JSON body; ``path`` is relative to the API, or a whole address."""
        address = path if path.startswith(("/", "http")) else API + path
        is_identity = method != "GET" and path.startswith(("users", "members", "group-rules"))
        client = self.in_session(role) if is_identity else self[role]
        sent = getattr(client, method.lower())
        if method == "GET":
            return sent(address, **headers)
        return sent(address, body, format="json", **headers)

    def etag(self, namespace: str = "acme-vision") -> str:
        """The ETag of a budget, as the admin reads it."""
        return self.send("admin", "GET", f"workspaces/{namespace}/budget").headers["ETag"]


@pytest.fixture(scope="module", autouse=True)
def _fleet_of_module(django_db_setup, django_db_blocker) -> Iterator[SmallFleet]:
    """The small fleet once per module: each test works in a savepoint inside it."""
    with django_db_blocker.unblock(), transaction.atomic():
        yield small_fleet()
        transaction.set_rollback(True)


@pytest.fixture
def fleet(_fleet_of_module: SmallFleet, db) -> SmallFleet:
    """The fleet of the module, in objects of the test's own."""
    return deepcopy(_fleet_of_module)


@pytest.fixture
def people(fleet: SmallFleet) -> People:
    cache.clear()
    users: dict[str, User | None] = {
        "admin": fleet.admin,
        "finance": fleet.finance,
        "auditor": fleet.auditor,
        "owner": fleet.owner,
        "anonymous": None,
    }
    for name in ("account_owner", "viewer", "stranger", "nobody"):
        users[name] = services.create_user(
            None, username=name, email=f"{name}@example.org", password=PASSWORD
        )
    services.grant_role(None, user=users["account_owner"], role=Role.OWNER, account=fleet.acme)
    services.grant_role(None, user=users["viewer"], role=Role.VIEWER, workspace=fleet.vision)
    services.grant_role(None, user=users["stranger"], role=Role.OWNER, account=fleet.globex)
    return People(fleet, users)


@pytest.fixture(autouse=True)
def quiet_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here reaches for a broker, even where a transaction commits."""
    monkeypatch.setattr("clusters.broker.send", lambda *_: True)
