"""Every error in one shape; nonsense of any kind is never the server's fault."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError
from django.urls import reverse
from django.urls.converters import UUIDConverter
from rest_framework.test import APIClient

from clusters import errors as cluster_errors
from portal.api import problems
from portal.api.urls import urlpatterns
from portal.api.views import MOST_BYTES
from tests.api.conftest import API
from tests.api.rows import add_cluster, add_workload

METHODS = ("get", "post", "put", "patch", "delete", "options", "head")
NONSENSE = (
    None,
    [],
    "text",
    17,
    {},
    {"reason": None, "lines": {}, "slug": [], "name": {"a": 1}},
    {"lines": [None, 1, "x", {"flavor": {}, "committed": 10**30, "ceiling": -1}]},
    {"lines": [], "short": [], "preference": "h100", "valid_from": 5, "spill": None},
    {"slug": "x" * 5000, "name": "\u202e", "account": "acme", "home_flavor": "h100"},
    {"account": "acme", "flavor": "h100", "committed": 10**12, "ceiling": 1, "pool": 1},
    {"account": "acme", "limits": {"h100": "many", "": -1}},
    {"flavor": "h100", "gpus": 1, "cluster": "../x", "valid_from": "9999-12-31T23:59:59-12:00"},
    {"flavor": "h100", "gpus": 1, "valid_from": "0001-01-01T00:00:00+14:00"},
    {"username": "olga", "role": "owner", "workspace": 5, "account": ["acme"]},
    {"username": "olga", "role": "owner", "workspace": "acme-vision", "account": "acme"},
    {"username": "a b", "email": "x", "password": "p"},
    {"slug": "fl", "name": "n", "node_labels": {"a": {"b": 1}}, "node_taints": [{"key": []}]},
    {"slug": "fl", "name": "n", "tolerations": [{"key": {"deep": [1]}}], "position": 1e300},
    {"oversubscription_factor": "NaN", "gpus_per_node": 0, "clock_start": []},
    {"accept": "perhaps", "reason": "  "},
    {"policy": "Explode", "reason": "r"},
    {"kubeconfig": 5, "role": "manager", "mode": "kueue", "slug": "c", "name": "c"},
    {"kubeconfig": "a: [", "role": "worker", "mode": "portal", "slug": "c", "name": "c"},
)
VALUES = {
    "namespace": ("acme-vision", "nonesuch", "acme_"),
    "slug": ("acme", "h100", "globex", "-", "hub", "gpu-east"),
    "account": ("acme", "zz"),
    "number": (1, 10**25),
    "other": (1, 10**25),
    "pk": (1, 10**25),
    "username": ("olga", "a\x00b", "é"),
    "uid": ("uid-1", "a\x00b", "%"),
    "name": ("2026-03", "2026-13", "march"),
}
NO_UUID = ("0" * 8 + "-0000-0000-0000-" + "0" * 12,)


def addresses(pattern) -> list[str]:
    """A route with good and bad values in its places."""
    names = list(pattern.pattern.converters)
    if pattern.name == "nowhere":
        return [API + "nowhere/at/all", API, API + "accounts/"]
    converters = pattern.pattern.converters.items()
    rows = list(
        itertools.product(
            *(NO_UUID if isinstance(c, UUIDConverter) else VALUES[name] for name, c in converters)
        )
    )
    rows = random.Random(pattern.name).sample(rows, min(8, len(rows)))
    return [
        reverse(f"api:{pattern.name}", kwargs=dict(zip(names, row, strict=True))) for row in rows
    ]


@pytest.mark.parametrize("pattern", urlpatterns, ids=lambda pattern: pattern.name)
def test_no_nonsense_makes_a_server_error(people, pattern, monkeypatch):
    monkeypatch.setattr("clusters.broker.current_app.send_task", lambda *_, **__: None)
    add_workload(add_cluster("hub", role="manager"), "acme-vision", "1")
    add_cluster("gpu-east", blocked_reason="a restored backup")
    dice = random.Random(pattern.name)
    client = people["admin"]
    client.raise_request_exception = False
    known = getattr(pattern.callback, "actions", None) or dir(pattern.callback.cls)
    for address, method in itertools.product(addresses(pattern), METHODS):
        # A method that the route does not have is refused before its body is looked at.
        takes_body = method in ("post", "put", "patch") and method in known
        for body in dice.sample(NONSENSE, 8) if takes_body else [None]:
            etag = dice.choice(('"1"', '"2.1"', '"5.5', "\xff"))
            answer = getattr(client, method)(
                address, body, format="json", HTTP_IF_MATCH=etag, HTTP_IF_NONE_MATCH=etag
            )
            assert answer.status_code < 500, (method, address, body, answer.content)
            if answer.status_code >= 400 and answer.content:
                assert {"code", "message"} <= answer.json().keys()


@pytest.mark.parametrize(
    ("raw", "content_type", "want_code"),
    [
        pytest.param(b"{", "application/json", 400, id="half an object"),
        pytest.param(b"", "application/json", 422, id="nothing"),
        pytest.param(b"\xff\xfe", "application/json", 400, id="no UTF-8"),
        pytest.param(b'{"slug": 1e400}', "application/json", 400, id="beyond a float"),
        pytest.param(b'{"slug": NaN}', "application/json", 400, id="NaN"),
        pytest.param(b'{"slug": ' + b"9" * 5000 + b"}", "application/json", 400, id="digits"),
        pytest.param(b"[" * 100_000, "application/json", 400, id="depth"),
        pytest.param(b'{"slug": "a\\u0000"}', "application/json", 400, id="NUL"),
        pytest.param(b'{"slug": "\\ud800"}', "application/json", 400, id="half a surrogate"),
        pytest.param(b'{"slug": "\\\\u0000"}', "application/json", 422, id="only looks like NUL"),
        pytest.param(b"{}", "application/json; charset=bz2_codec", 415, id="charset"),
        pytest.param(b" " * (MOST_BYTES + 1), "application/json", 413, id="size"),
        pytest.param(b"slug=a", "application/x-www-form-urlencoded", 415, id="form"),
        pytest.param(b"<a/>", "text/xml", 415, id="XML"),
    ],
)
def test_unreadable_body_is_told_as_such(people, raw, content_type, want_code):
    answer = people["admin"].generic("POST", API + "accounts", raw, content_type=content_type)
    assert answer.status_code == want_code
    assert {"code", "message"} <= answer.json().keys()


def test_address_that_is_not_there_is_json_too(people):
    answer = APIClient().get(API + "nope")
    assert answer.status_code == 404
    assert answer.json()["code"] == "not_found"


def test_nul_in_an_address_never_reaches_the_database(people, monkeypatch):
    asked = []
    monkeypatch.setattr("clusters.selectors.workload_detail", lambda *given: asked.append(given))
    answer = people.send("admin", "GET", "workloads/hub/a%00b")
    assert (answer.status_code, asked) == (404, [])


def test_other_formats_are_not_offered(people):
    answer = people["admin"].get(API + "me", HTTP_ACCEPT="text/html")
    assert answer.status_code == 406
    assert answer.headers["Content-Type"] == "application/json"


def test_method_that_is_not_there_is_405(people):
    answer = people.send("admin", "DELETE", "workspaces/acme-vision")
    assert answer.status_code == 405
    assert answer.json()["code"] == "method_not_allowed"


def test_unknown_and_unwritable_fields_are_named(people):
    body = {"slug": "new", "name": "New", "generation": 7, "<b>": 1}
    answer = people.send("admin", "POST", "accounts", body)
    assert answer.status_code == 422
    assert {(f["field"], f["code"]) for f in answer.json()["faults"]} == {
        ("generation", "unknown_field"),
        ("<b>", "unknown_field"),
    }


@pytest.mark.parametrize(
    ("error", "want_status", "want_code"),
    [
        (IntegrityError("UNIQUE secret detail"), 409, "conflict"),
        (cluster_errors.Unreachable("no answer"), 503, "cluster_away"),
        (cluster_errors.Forbidden("may not"), 502, "cluster_refused"),
        (cluster_errors.KubeconfigRejected("plain HTTP"), 422, "rejected"),
        (ValidationError("plain"), 422, "rejected"),
        (ValidationError({"slug": ["bad"], "__all__": ["worse"]}), 422, "rejected"),
    ],
)
def test_errors_of_the_other_layers_have_their_status(error, want_status, want_code):
    answer = problems.handle(error, {})
    assert (answer.status_code, answer.data["code"]) == (want_status, want_code)
    assert "secret detail" not in json.dumps(answer.data)


def test_error_that_nobody_planned_is_not_swallowed():
    assert problems.handle(RuntimeError("bug"), {}) is None
