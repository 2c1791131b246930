"""An owner of one workspace learns nothing of another's, by no address, filter or cursor."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.urls import NoReverseMatch, reverse
from django.urls.converters import IntConverter

from budgets import services
from budgets.models import AuditEntry, Operation
from portal.api.urls import urlpatterns
from tests.api.rows import add_cluster, add_workload
from tests.builders import line
from tests.factories import UsageRecordFactory, WorkloadUsageFactory

SECRETS = ("globex", "search", "stranger", "acme-speech", "speech")


@pytest.fixture
def busy(people):
    """Everybody has a budget, a request, usage, a pool and an operation."""
    fleet = people.fleet
    now = services.utc_now()
    for workspace in (fleet.vision, fleet.speech, fleet.search):
        fleet.revise(workspace, line("h100", 8), valid_from=None)
        UsageRecordFactory(
            workspace=workspace, flavor=fleet.flavors["h100"], hour=now - timedelta(days=1)
        )
        WorkloadUsageFactory(workspace=workspace, hour=now - timedelta(days=1), burst=3600)
    stranger = people.users["stranger"]
    fleet.revise(fleet.search, line("h100", 16), actor=stranger)
    services.create_pool(None, slug="globex-own", name="Own", account=fleet.globex)
    platform = services.create_pool(None, slug="platform", name="Platform")
    services.set_pool_share(None, pool=platform, account=fleet.acme, limits={})
    services.set_pool_share(None, pool=platform, account=fleet.globex, limits={"h100": 3})
    services.set_envelope(
        None, account=fleet.globex, flavor=fleet.flavors["h100"], committed=1, ceiling=1, pool=1
    )
    hub = add_cluster("hub", role="manager")
    add_cluster("gpu-east")
    for workspace in (fleet.vision, fleet.speech, fleet.search):
        add_workload(hub, workspace.namespace, f"job-{workspace.slug}")
    services.start_operation(stranger, kind="export", subject="globex-search")
    return people


def addresses(namespace: str, account: str, pool: str) -> list[str]:
    """Every GET of the API with the names of somebody."""
    operation = Operation.objects.get()
    known = {
        "namespace": namespace,
        "number": 1,
        "other": 2,
        "pk": operation.pk,
        "username": "stranger",
        "account": account,
        "uid": f"uid-job-{namespace.partition('-')[2]}",
    }
    found = []
    for pattern in urlpatterns:
        if pattern.name == "nowhere":
            continue
        slug = pool if pattern.name.startswith("pool") else account
        slug = "hub" if pattern.name.startswith("workload") else slug
        converters = pattern.pattern.converters
        values = {name: known.get(name, slug) for name in converters}
        if isinstance(converters.get("pk"), IntConverter):
            values["pk"] = 1
        if "slug" in values and pattern.name.startswith("flavor"):
            values["slug"] = "h100"
        found.append(reverse(f"api:{pattern.name}", kwargs=values))
    return found


def test_no_answer_to_an_owner_names_what_is_not_theirs(busy):
    for address in addresses("acme-vision", "acme", "platform"):
        answer = busy.send("owner", "GET", address)
        assert answer.status_code in (200, 403, 404, 405) or (
            address.endswith("/usage/groups") and answer.status_code == 422  # it wants a label
        ), address
        if answer.status_code == 200 and not address.endswith("schema"):
            text = json.dumps(answer.json()) if not answer.streaming else b"".join(answer).decode()
            assert [name for name in SECRETS if name in text] == [], address


def test_no_address_of_another_account_exists_for_an_owner(busy):
    for address in addresses("globex-search", "globex", "globex-own"):
        is_theirs = "globex" in address or "operations" in address
        # Clusters are no account's: every name of one is refused alike.
        if not is_theirs or "/clusters/" in address:
            continue
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            code = busy.send("owner", method, address, {}).status_code
            assert code in (404, 405), (method, address, code)
    assert AuditEntry.objects.filter(actor__username="olga").count() == 0


@pytest.mark.parametrize(
    ("filtered", "want"),
    [
        pytest.param("workspaces?account=globex", 200, id="workspaces"),
        pytest.param("members?workspace=globex-search", 200, id="members by workspace"),
        pytest.param("members?username=stranger", 200, id="members by name"),
        pytest.param("envelopes?account=globex", 200, id="envelopes"),
        pytest.param("requests?workspace=globex-search", 200, id="requests"),
        pytest.param("audit?account=globex", 422, id="audit by account"),
        pytest.param("audit?workspace=globex-search", 422, id="audit by workspace"),
        pytest.param("usage/workloads?workspace=globex-search", 200, id="workloads"),
        pytest.param("workspaces?cursor=globex-zzz", 200, id="cursor"),
    ],
)
def test_no_filter_reaches_what_is_not_theirs(busy, filtered, want):
    answer = busy.send("owner", "GET", filtered)
    assert answer.status_code == want
    if want == 200:
        assert answer.json()["results"] == []
    else:
        unknown = busy.send("owner", "GET", filtered.replace("globex", "nonesuch"))
        texts = [
            json.dumps(found.json()).replace("nonesuch", "globex") for found in (answer, unknown)
        ]
        assert texts[0] == texts[1]


def test_usage_of_another_workspace_counts_as_nothing(busy):
    every = busy.send("admin", "GET", "usage").json()["totals"]["committed"]
    own = busy.send("owner", "GET", "usage").json()["totals"]["committed"]
    theirs = busy.send("owner", "GET", "usage?workspace=globex-search").json()
    assert every == 3 * own > 0
    assert theirs["rows"] == []
    assert theirs["totals"]["committed"] == 0
    keys = busy.send("owner", "GET", "usage?split_by=workspace").json()["rows"]
    assert {row["key"] for row in keys} == {"acme-vision"}


def test_impact_hides_the_names_of_others(busy):
    body = {"lines": [{"flavor": "h100", "committed": 0, "ceiling": 40}]}
    seen = busy.send("owner", "POST", "workspaces/acme-vision/budget/preview", body)
    assert [place["cluster"] for place in seen.json()["manifests"]] == ["hub"]
    whole = busy.send("admin", "POST", "workspaces/acme-vision/budget/preview", body).json()
    assert [place["cluster"] for place in whole["manifests"]] == ["hub", "gpu-east"]
    text = json.dumps(seen.json())
    assert [name for name in SECRETS if name in text] == []


def test_operations_are_seen_by_those_who_started_them_and_by_platform_roles(busy):
    path = f"operations/{Operation.objects.get().pk}"
    codes = {
        role: busy.send(role, "GET", path).status_code
        for role in ("stranger", "owner", "account_owner", "admin", "auditor")
    }
    assert codes == {
        "stranger": 200,
        "owner": 404,
        "account_owner": 404,
        "admin": 200,
        "auditor": 200,
    }


def test_every_route_has_a_name_that_reverses():
    for pattern in urlpatterns:
        try:
            reverse(f"api:{pattern.name}")
        except NoReverseMatch as error:
            assert pattern.pattern.converters, error
