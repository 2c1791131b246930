"""Role by endpoint: who gets what, and 404 for what is not theirs to see."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from budgets.models import PoolShare
from tests.api.conftest import ROLES, People

LINE = {"lines": [{"flavor": "h100", "committed": 8, "ceiling": 8}], "reason": "test"}
V = "workspaces/acme-vision"
ADMINS = {"admin"}
PLATFORM = {"admin", "finance", "auditor"}
VISION = PLATFORM | {"owner", "account_owner", "viewer"}
ALL = set(ROLES) - {"anonymous"}


def wanted(ok: set[str], seen: set[str], code: int) -> dict[str, int]:
    """``code`` for those who may, 403 for those who see it, 404 for the others."""
    return {
        role: code if role in ok else 403 if role in seen else 404
        for role in ROLES
        if role != "anonymous"
    } | {"anonymous": 401}


CASES: list[tuple[str, str, Any, dict[str, int]]] = [
    ("GET", "schema", None, wanted(ALL, ALL, 200)),
    ("GET", "me", None, wanted(ALL, ALL, 200)),
    ("GET", "tokens", None, wanted(ALL, ALL, 200)),
    ("GET", "users", None, wanted(ADMINS, ALL, 200)),
    (
        "POST",
        "users",
        {"username": "new", "email": "n@example.org"},
        wanted(ADMINS, ALL, 201),
    ),
    (
        "PUT",
        "users/olga/password",
        {"password": "a long new password"},
        wanted(ADMINS, ALL, 204),
    ),
    ("GET", "users/olga", None, wanted(ADMINS, ALL, 200)),
    ("GET", "users/olga/tokens", None, wanted(ADMINS, ALL, 200)),
    ("POST", "users/nobody/deactivate", {"reason": "r"}, wanted(ADMINS, ALL, 200)),
    ("POST", "users/nobody/reactivate", {"reason": "r"}, wanted(ADMINS, ALL, 200)),
    ("GET", "members", None, wanted(ALL, ALL, 200)),
    (
        "POST",
        "members",
        {"username": "nobody", "role": "auditor"},
        wanted(ADMINS, ALL, 201),
    ),
    ("GET", "group-rules", None, wanted(ADMINS, ALL, 200)),
    (
        "POST",
        "group-rules",
        {"provider": "corp", "group": "audit", "role": "auditor"},
        wanted(ADMINS, ALL, 422),  # which no settings name
    ),
    ("GET", "audit", None, wanted(ALL, ALL, 200)),
    ("GET", "setup", None, wanted(ALL, ALL, 200)),
    ("GET", "accounts", None, wanted(ALL, ALL, 200)),
    ("POST", "accounts", {"slug": "initech", "name": "I"}, wanted(ADMINS, ALL, 201)),
    ("GET", "accounts/acme", None, wanted(VISION, VISION, 200)),
    ("PATCH", "accounts/acme", {"name": "A"}, wanted(ADMINS, VISION, 200)),
    ("POST", "accounts/acme/archive", {"reason": "r"}, wanted(set(), VISION, 0) | {"admin": 422}),
    ("GET", "flavors", None, wanted(ALL, ALL, 200)),
    ("POST", "flavors", {"slug": "b200", "name": "B200"}, wanted(ADMINS, ALL, 201)),
    ("GET", "flavors/l4", None, wanted(ALL, ALL, 200)),
    ("PATCH", "flavors/l4", {"position": 9}, wanted(ADMINS, ALL, 200)),
    ("POST", "flavors/l4/archive", {"reason": "r"}, wanted(ADMINS, ALL, 200)),
    ("GET", "capacities", None, wanted(ALL, ALL, 200)),
    (
        "POST",
        "capacities",
        {"cluster": "gpu-east", "flavor": "l4", "gpus": 4},
        wanted(ADMINS, ALL, 201),
    ),
    ("GET", "envelopes", None, wanted(ALL, ALL, 200)),
    ("GET", "alerts", None, wanted(ALL, ALL, 200)),
    ("GET", "alert-rules", None, wanted(ALL, ALL, 200)),
    (
        "POST",
        "alert-rules",
        {"account": "acme", "measure": "hours", "limit": "100"},
        # Whoever sees no part of the account is told that there is none.
        wanted({"admin", "finance", "account_owner"}, VISION, 201)
        | dict.fromkeys(("stranger", "nobody"), 422),
    ),
    ("GET", "webhooks", None, wanted(ALL, ALL, 200)),
    (
        "POST",
        "webhooks",
        {"name": "Team", "url": "https://example.org/hook"},
        wanted({"admin", "finance"}, ALL, 201),
    ),
    ("GET", "pools", None, wanted(ALL, ALL, 200)),
    ("POST", "pools", {"slug": "extra", "name": "Extra"}, wanted(ADMINS, ALL, 201)),
    ("GET", "workspaces", None, wanted(ALL, ALL, 200)),
    ("GET", V, None, wanted(VISION, VISION, 200)),
    ("PATCH", V, {"name": "V"}, wanted(ADMINS, VISION, 200)),
    ("POST", f"{V}/archive", {"reason": "r"}, wanted(ADMINS, VISION, 200)),
    ("GET", f"{V}/budget", None, wanted(VISION, VISION, 200)),
    ("GET", f"{V}/budget/revisions", None, wanted(VISION, VISION, 200)),
    ("GET", f"{V}/budget/revisions/1", None, wanted(VISION, VISION, 200)),
    ("GET", f"{V}/budget/revisions/1/diff/1", None, wanted(VISION, VISION, 200)),
    ("POST", f"{V}/budget/preview", LINE, wanted(VISION, VISION, 200)),
    (
        "POST",
        f"{V}/budget/revisions",
        LINE,
        wanted({"admin", "finance", "owner", "account_owner"}, VISION, 201),
    ),
    (
        "POST",
        f"{V}/budget/revisions/1/restore",
        {"reason": "back"},
        wanted({"admin", "finance", "owner", "account_owner"}, VISION, 201),
    ),
    (
        "POST",
        f"{V}/budget/revisions/2/withdraw",
        {},
        wanted({"admin", "owner", "account_owner"}, VISION, 200),
    ),
    (
        "POST",
        f"{V}/budget/revisions/2/decide",
        {"accept": True, "reason": "fine"},
        wanted(ADMINS, VISION, 200),
    ),
    (
        "PUT",
        f"{V}/budget/stop",
        {"policy": "Hold", "reason": "r"},
        wanted({"admin", "owner", "account_owner"}, VISION, 200),
    ),
    ("GET", f"{V}/budget/reallocation", None, wanted(ADMINS, set(), 200)),
    ("POST", f"{V}/budget/reallocation", {"reason": "r"}, wanted(ADMINS, VISION, 200)),
    ("GET", "requests", None, wanted(ALL, ALL, 200)),
    ("GET", "usage", None, wanted(ALL, ALL, 200)),
    ("GET", "usage/workloads", None, wanted(ALL, ALL, 200)),
    ("GET", "fleet", None, wanted(PLATFORM, ALL, 200)),
]


@pytest.fixture
def budgeted(people: People) -> People:
    """Revision 1 is in force, revision 2 waits for an admin."""
    first = people.send(
        "owner",
        "POST",
        "workspaces/acme-vision/budget/revisions",
        LINE,
        HTTP_IF_MATCH=people.etag(),
    )
    assert first.status_code == 201
    beyond = {"lines": [{"flavor": "h100", "committed": 40, "ceiling": 40}], "reason": "more"}
    second = people.send(
        "owner",
        "POST",
        "workspaces/acme-vision/budget/revisions",
        beyond,
        HTTP_IF_MATCH=people.etag(),
    )
    assert second.status_code == 202
    return people


def test_every_role_gets_what_its_role_allows(budgeted):
    for role in ROLES:
        budgeted[role]  # has a token now, which is not undone with what is asked below
    etag, wrong = budgeted.etag(), {}
    for method, path, body, want_codes in CASES:
        found = {}
        for role in ROLES:
            with transaction.atomic():
                answer = budgeted.send(role, method, path, body, HTTP_IF_MATCH=etag)
                found[role] = answer.status_code
                transaction.set_rollback(True)
        if found != want_codes:
            wrong[f"{method} {path}"] = (found, want_codes)
    assert wrong == {}


def test_shares_of_platform_pools_are_for_admins(people):
    admin = people["admin"]
    admin.post("/api/v1/pools", {"slug": "spot", "name": "Spot"}, format="json")
    share = {"account": "acme", "limits": {"h100": 4}}
    assert people.send("admin", "PUT", "pools/spot/shares", share).status_code == 200
    assert people.send("owner", "PUT", "pools/spot/shares", share).status_code == 403
    assert people.send("stranger", "PUT", "pools/spot/shares", share).status_code == 404
    assert people.send("owner", "DELETE", "pools/spot/shares/acme").status_code == 403
    assert people.send("admin", "DELETE", "pools/spot/shares/globex").status_code == 404
    assert people.send("admin", "DELETE", "pools/spot/shares/acme").status_code == 204
    assert not PoolShare.objects.exists()


def test_amounts_of_an_account_pool_are_for_its_owner_within_the_envelope(people):
    body = {"slug": "acme-extra", "name": "Extra", "account": "acme"}
    assert people.send("admin", "POST", "pools", body).status_code == 201
    amount = {"flavor": "h100", "gpus": 8}
    path = "pools/acme-extra/amounts"
    assert people.send("viewer", "POST", path, amount).status_code == 403
    assert people.send("stranger", "POST", path, amount).status_code == 404
    made = people.send("account_owner", "POST", path, amount)
    assert made.status_code == 201
    assert [row["gpus"] for row in made.json()["amounts"]] == [8]
    beyond = people.send("account_owner", "POST", path, {"flavor": "h100", "gpus": 9})
    assert beyond.status_code == 422
    assert [fault["field"] for fault in beyond.json()["faults"]] == ["gpus"]
