"""Browsers without a browser: one logged-in client per role."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.test import Client

from budgets import services
from budgets.models import Role, User
from portal import fairness
from tests.builders import PASSWORD, SmallFleet

ROLES = ("admin", "finance", "auditor", "owner", "viewer", "stranger", "nobody", "anonymous")
HTMX = {"HTTP_HX_REQUEST": "true"}
# New in every answer, and of the reader alone.
DRAWN_ANEW = re.compile(r'csrf[^>]*"|nonce="[^"]*"|"X-CSRFToken[^}]*|name="token" value="[^"]*"')


@dataclass
class Visitors:
    """``visitors["owner"].get(...)``; ``stranger`` owns globex-search, owner acme-vision."""

    fleet: SmallFleet
    users: dict[str, User | None]
    clients: dict[str, Client] = field(default_factory=dict)

    def __getitem__(self, role: str) -> Client:
        if role not in self.clients:
            client = Client()
            user = self.users[role]
            if user is not None:
                client.force_login(user)
            self.clients[role] = client
        return self.clients[role]

    def text(self, role: str, address: str, **more: Any) -> str:
        """A page that has to be there, as text."""
        answer = self[role].get(address, **more)
        assert answer.status_code == 200, (address, answer.status_code)
        return answer.content.decode()


@pytest.fixture
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that ask more in a minute than a person may: each is answered as the first is."""
    most = {kind: (10**9, words) for kind, (_, words) in fairness.MOST.items()}
    monkeypatch.setattr(fairness, "MOST", most)


@pytest.fixture
def visitors(fleet: SmallFleet) -> Visitors:
    def person(name: str) -> User:
        return services.create_user(
            None, username=name, email=f"{name}@example.org", password=PASSWORD
        )

    viewer, stranger, nobody = person("vera"), person("stan"), person("nora")
    services.grant_role(None, user=viewer, role=Role.VIEWER, workspace=fleet.vision)
    services.grant_role(None, user=stranger, role=Role.OWNER, workspace=fleet.search)
    users = {
        "admin": fleet.admin,
        "finance": fleet.finance,
        "auditor": fleet.auditor,
        "owner": fleet.owner,
        "viewer": viewer,
        "stranger": stranger,
        "nobody": nobody,
        "anonymous": None,
    }
    return Visitors(fleet, users)
