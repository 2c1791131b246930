"""Who gets which page: the whole matrix, and that the invisible looks like the absent."""

from __future__ import annotations

import re

import pytest

from tests.builders import line
from tests.web.conftest import ROLES, Visitors

EVERYBODY = {"admin", "finance", "auditor", "owner", "viewer", "stranger", "nobody"}
PLATFORM = {"admin", "finance", "auditor"}
SEES_VISION = PLATFORM | {"owner", "viewer"}
# address → who gets 200; who of the rest gets 403 (else 404).
PAGES = {
    "/": (EVERYBODY, set()),
    "/jobs/": (EVERYBODY, set()),
    "/usage/": (EVERYBODY, set()),
    "/usage/?format=csv": (EVERYBODY, set()),
    "/audit/": (EVERYBODY, set()),
    "/requests/": (EVERYBODY, set()),
    "/tokens/": (EVERYBODY, set()),
    "/profile/": (EVERYBODY, set()),
    "/password/": (EVERYBODY, set()),
    "/fleet/": (PLATFORM, EVERYBODY - PLATFORM),
    "/fleet/kueue/": (PLATFORM, EVERYBODY - PLATFORM),
    "/clusters/": (PLATFORM, EVERYBODY - PLATFORM),
    "/clusters/register/": ({"admin"}, EVERYBODY - {"admin"}),
    "/setup/": ({"admin"}, EVERYBODY - {"admin"}),
    "/setup/accounts/": ({"admin"}, EVERYBODY - {"admin"}),
    "/setup/accounts/acme/": ({"admin"}, EVERYBODY - {"admin"}),
    "/setup/workspaces/": ({"admin"}, EVERYBODY - {"admin"}),
    "/setup/workspaces/acme-vision/": ({"admin"}, EVERYBODY - {"admin"}),
    "/setup/flavors/": ({"admin"}, EVERYBODY - {"admin"}),
    "/setup/flavors/h100/": ({"admin"}, EVERYBODY - {"admin"}),
    "/setup/capacity/": ({"admin"}, EVERYBODY - {"admin"}),
    "/setup/pools/": ({"admin"}, EVERYBODY - {"admin"}),
    "/setup/people/": ({"admin"}, EVERYBODY - {"admin"}),
    "/workspaces/acme-vision/": (SEES_VISION, set()),
    "/workspaces/acme-vision/history/": (SEES_VISION, set()),
    "/workspaces/acme-vision/history/1/": (SEES_VISION, set()),
    "/workspaces/acme-vision/spend/": (SEES_VISION, set()),
    "/workspaces/acme-vision/budget/": ({"admin", "owner"}, {"finance", "auditor", "viewer"}),
    "/workspaces/acme-vision/budget/stop/": ({"admin", "owner"}, {"finance", "auditor", "viewer"}),
    "/workspaces/acme-vision/budget/reallocate/": ({"admin"}, SEES_VISION - {"admin"}),
}


def without_tokens(answer) -> str:
    """The page without what differs from request to request."""
    return re.sub(r'(name="csrfmiddlewaretoken" value=)"\w+"', r"\1", answer.content.decode())


@pytest.mark.parametrize("role", ROLES)
def test_page_matrix(visitors: Visitors, role: str):
    visitors.fleet.revise(visitors.fleet.vision, line("h100", 16))
    got = {address: visitors[role].get(address).status_code for address in PAGES}

    if role == "anonymous":
        assert set(got.values()) == {302}
        return
    want = {
        address: 200 if role in seen else 403 if role in refused else 404
        for address, (seen, refused) in PAGES.items()
    }
    assert got == want


@pytest.mark.parametrize(
    "address",
    [
        "/workspaces/{}/",
        "/workspaces/{}/budget/",
        "/workspaces/{}/budget/stop/",
        "/workspaces/{}/history/",
        "/workspaces/{}/spend/",
        "/workspaces/{}/history/1/",
        "/workspaces/{}/history/1/decide/",
    ],
)
def test_foreign_workspace_answers_exactly_as_an_absent_one(visitors: Visitors, address: str):
    visitors.fleet.revise(visitors.fleet.vision, line("h100", 16))
    client = visitors["stranger"]

    foreign = client.get(address.format("acme-vision"))
    absent = client.get(address.format("acme-nothing"))

    assert foreign.status_code == absent.status_code == 404
    assert without_tokens(foreign) == without_tokens(absent)


@pytest.mark.parametrize("address", ["/jobs/", "/usage/", "/audit/"])
def test_foreign_workspace_in_a_filter_answers_as_an_absent_one(visitors: Visitors, address: str):
    client = visitors["stranger"]

    foreign = client.get(f"{address}?workspace=acme-vision")
    absent = client.get(f"{address}?workspace=acme-nothing")

    assert foreign.status_code == absent.status_code == 422
    text = without_tokens(foreign).replace("acme-vision", "acme-nothing")
    assert text == without_tokens(absent)


def test_foreign_names_are_on_no_page_of_a_stranger(visitors: Visitors):
    visitors.fleet.revise(visitors.fleet.vision, line("h100", 16))

    for address in ("/", "/jobs/", "/usage/", "/usage/?format=csv", "/audit/", "/requests/"):
        answer = visitors["stranger"].get(address)
        assert b"acme" not in b"".join(answer), address


@pytest.mark.parametrize("role", ["viewer", "finance", "auditor"])
def test_who_may_only_look_changes_nothing(visitors: Visitors, role: str):
    budget = visitors.fleet.vision.budget
    typed = {"version": budget.version, "shape": "short", "committed": 1, "ceiling": 1}

    answer = visitors[role].post(
        "/workspaces/acme-vision/budget/", {**typed, "home_flavor": "h100"}
    )

    budget.refresh_from_db()
    assert answer.status_code == 403
    assert budget.in_force is None


def test_every_page_has_the_policy_and_no_inline_code(visitors: Visitors):
    visitors.fleet.revise(visitors.fleet.vision, line("h100", 16))

    for address in PAGES:
        if "csv" in address:
            continue
        answer = visitors["admin"].get(address)
        policy, text = answer["Content-Security-Policy"], answer.content.decode()
        assert "'unsafe" not in policy
        assert "script-src 'self'" in policy
        assert "style-src 'self'" in policy
        assert " style=" not in text, address
        assert "<style" not in text, address
        assert " onclick=" not in text and " hx-on" not in text, address
        assert "https://" not in text.replace("https://kubernetes", ""), address


def test_every_hx_get_has_an_address_that_works_without_scripts(visitors: Visitors):
    text = visitors.text("admin", "/")
    assert 'hx-boost="true"' in text
    for address in ("/", "/jobs/", "/fleet/", "/clusters/"):
        assert "<html" in visitors.text("admin", address)
