"""Every write of the API with a body that is sound, by everybody who must not do it.

The addresses are the router's, the bodies what the API's own document asks for, filled in by the
names of their fields. Each is sound: somebody is not refused for it, so that no fault of a body
stands for a right that is asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from tests.web.conftest import Visitors
from tests.web.test_every_route import PART, ROUTES, address_of, theirs  # noqa: F401  a fixture
from tests.web.test_query_counts import busy  # noqa: F401  a fixture

API = "api/v1/"
DOERS = ("admin", "finance", "owner")
OTHERS = ("viewer", "auditor", "stranger", "nobody", "anonymous")
REFUSED = (401, 403, 404)
# What people do with what is their own, or with what they may read.
OWN = {"login", "exports", "exports/preview", "what-if", "export-plans", "alert-rules"}
LOOKS = {"workspaces/<slug:namespace>/budget/preview", "workspaces/<slug:namespace>/looks"}
# Of what these addresses name no row is made here: they have tests of their own.
ELSEWHERE = {
    "alert-rules/<int:pk>",
    "alert-rules/<int:pk>/snooze",
    "pools/<slug:slug>/shares/<slug:account>",
    "webhooks/<int:pk>",
    "webhooks/<int:pk>/key",
    "webhooks/<int:pk>/test",
    "workload-actions/<int:pk>/withdraw",
    "workspaces/<slug:namespace>/budget/spend-rules/<int:pk>",
    "workspaces/<slug:namespace>/budget/spend-rules/<int:pk>/glass",
    "workspaces/<slug:namespace>/budget/spend-rules/<int:pk>/remove",
}
# Who made it waits for a second person, of whom tests/billing/test_four_eyes.py has tests.
FOR_ANOTHER = {"adjustments/<int:pk>/decide", "proposals/<int:pk>/decide"}
YEAR_END = "2026-12-31T00:00:00Z"
# By the name of a field.
GIVEN: Mapping[str, Any] = {
    "accept": True, "account": "acme", "amount": "5", "approve": True, "base": "USD", "burst": 4,
    "ceiling": 8, "change": "raise", "cluster": "gpu-east", "committed": 4, "currency": "EUR",
    "dataset": "usage", "day": "2026-03-02", "email": "n@example.org", "ends_at": YEAR_END,
    "every": "day", "flavor": "h100", "format": "csv", "gpus": 8, "group": "g2",
    "home_flavor": "h100", "is_one_person": False, "job": "train", "keep": "cluster",
    "kubeconfig": "{}",
    "lendable": 0, "limit": "100", "measure": "hours", "mode": "kueue", "month": "2026-11",
    "name": "New", "password": "a-long-enough-secret", "percent": "12", "period": "2026-03",
    "policy": "Hold", "pool": 8, "price": "1.5", "provider": "corp", "quote": "EUR",
    "rate": "0.9", "reason": "a test", "slug": "new", "start": "2026-03-01T00:00:00Z",
    "uid": "uid-0", "unit": "gpu_hours", "until": YEAR_END, "url": "https://example.org/hook",
    "username": "nora", "valid_from": "2027-01-01T00:00:00Z", "verb": "deactivate", "weight": "2",
    "window": "month",
}  # fmt: skip
LINES = {"lines": [{"flavor": "h100", "committed": 4, "ceiling": 8}]}
# By the route, where that is not enough.
MORE: Mapping[str, Mapping[str, Any]] = {
    "accounts/<slug:slug>": {"name": "New"},
    "alert-rules": {"workspace": "acme-vision"},
    "clusters": {"role": "worker", "kubeconfig": "{}"},
    "clusters/<slug:slug>/kubeconfig": {"kubeconfig": "{}"},
    "group-rules": {"role": "admin"},
    "maintenance": {"cluster": "gpu-east"},
    "maintenance/preview": {"cluster": "gpu-east"},
    "members": {"role": "viewer", "workspace": "acme-vision"},
    "users": {"username": "newcomer"},
    "what-if": {"workspace": "acme-vision", "flavor": "h100", "by": 1},
    "workspaces/<slug:namespace>": {"name": "New"},
    "workload-actions": {"jobs": [{"cluster": "manager", "uid": "uid-0"}]},
    "workspaces/<slug:namespace>/budget/dating-back": {
        **LINES, "reason": "a test", "valid_from": "2026-01-01T00:00:00Z",
    },
    "workspaces/<slug:namespace>/budget/preview": LINES,
    "workspaces/<slug:namespace>/budget/revisions": {**LINES, "reason": "a test"},
}  # fmt: skip
UNSOUND = {"required", "invalid", "invalid_choice", "null", "blank", "not_a_list"}


def test_nobody_writes_what_is_not_theirs_to_write(
    busy: Visitors,  # noqa: F811
    theirs: dict[str, Any],  # noqa: F811
):
    wrong: dict[str, Any] = {}
    asked = writes()
    for (method, route), body in asked.items():
        address = address_of(API + route, theirs)
        answers = {role: _answer(busy, role, method, address, body) for role in (*DOERS, *OTHERS)}
        for role in OTHERS:
            status, codes = answers[role]
            is_own = route in OWN or (route in LOOKS and role in ("viewer", "auditor"))
            # Somebody else's account or workspace is none that they could name.
            is_unknown = status == 422 and codes and all("unknown" in code for code in codes)
            if not (status in REFUSED or is_unknown or (is_own and role != "anonymous")):
                wrong[f"{method} {route} by {role}"] = status, codes
        done = {role for role in DOERS if answers[role][0] not in REFUSED}
        if route not in ELSEWHERE | FOR_ANOTHER | {"login"} and not done:
            wrong[f"{method} {route}"] = "refused to everybody"
        for role in done:
            status, codes = answers[role]
            if status >= 500 or UNSOUND & codes:
                wrong[f"{method} {route}: body"] = role, status, codes
    assert wrong == {}
    assert len(asked) > 80


def _answer(
    visitors: Visitors, role: str, method: str, address: str, body: Any
) -> tuple[int, set[str]]:
    """Status and codes of the faults; what was done is undone."""
    client, user = Client(), visitors.users[role]
    if user is not None:
        client.force_login(user)
    with transaction.atomic():
        got = getattr(client, method)(
            address,
            json.dumps(body),
            content_type="application/json",
            headers={"If-Match": '"1"'},
        )
        transaction.set_rollback(True)
    faults = got.json().get("faults", ()) if got.status_code == 422 else ()
    return got.status_code, {fault["code"] for fault in faults}


def writes() -> Mapping[tuple[str, str], Any]:
    """Method and route of each write → a body as its document asks for."""
    document = SchemaGenerator().get_schema(request=None, public=True)
    schemas = document["components"]["schemas"]
    told = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            asked = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            body = _made(asked["schema"], schemas) if asked else {}
            told[method, re.sub(r"{\w+}", "{}", path).strip("/")] = body
    found = {}
    for route in ROUTES:
        for method in ("post", "put", "patch", "delete"):
            key = method, PART.sub("{}", route).strip("/")
            if route.startswith(API) and key in told:
                name = route.removeprefix(API)
                found[method, name] = {**told[key], **MORE.get(name, {})}
    return found


def _made(schema: Any, schemas: Mapping[str, Any], name: str = "") -> Any:
    """A value for a schema: by its name where it has one, else what is required of it."""
    if "$ref" in schema:
        return _made(schemas[schema["$ref"].rpartition("/")[2]], schemas, name)
    if len(schema.get("allOf", ())) == 1:
        return _made(schema["allOf"][0], schemas, name)
    if schema.get("type") == "array":
        return [_made(schema["items"], schemas, name)]
    if name in GIVEN and "properties" not in schema:
        return GIVEN[name]
    if "enum" in schema:
        return schema["enum"][0]
    parts = schema.get("properties", {})
    return {key: _made(parts[key], schemas, key) for key in schema.get("required", ())}
