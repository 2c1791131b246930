"""Plans become documents: golden files, and the rules that no golden file tells."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from budgets.plan import ClusterPlace, Line, Promises, Spill, plan_quota
from clusters.manifests import names
from clusters.manifests.diff import changes
from clusters.manifests.translate import UNLIMITED, Site, render
from tests.builders import line, promises
from tests.golden import assert_golden

SITE = Site(installation="test", generation=3)


def sample() -> Promises:
    """16 committed, burst 32, prefer spot; an account pool; a platform pool above one account."""
    builder = promises()
    for flavor in ("h100", "h100-spot", "l4"):
        builder = builder.flavor(flavor)
    return (
        builder.account("acme", pool={"h100": 8}, split={("h100", "east"): 8})
        .account("globex")
        .platform_pool(
            "spot",
            {"h100-spot": 24},
            shares={"globex": {"h100-spot": 16}},
            split={("h100-spot", "west"): 24},
        )
        .workspace(
            "acme",
            "vision",
            line("h100", 16, 16),
            line("h100-spot", 0, 16, 0),
            preference=("h100-spot", "h100"),
            split={("h100", "east"): (16, 16)},
        )
        .workspace("globex", "search", line("l4", 4, 12, 2), spill=Spill.BORROW_FIRST)
        .build()
    )


def rendered(place: ClusterPlace, site: Site = SITE, fleet: Promises | None = None):
    return render(plan_quota(fleet or sample(), place), site=site)


CASES = {
    "manager": (
        ClusterPlace("manager", True, workers=("west", "east")),
        replace(SITE, has_multikueue=True),
    ),
    "worker": (ClusterPlace("east", False), SITE),
}


@pytest.mark.parametrize("name", CASES)
def test_render_is_as_in_the_golden_file(name: str) -> None:
    place, site = CASES[name]
    text = yaml.safe_dump_all(rendered(place, site), sort_keys=False)
    assert_golden(f"manifests/{name}.yaml", text)


def test_render_is_in_kind_order_with_parents_first() -> None:
    keys = [names.key_of(document) for document in rendered(*CASES["manager"])]
    assert [key.rank for key in keys] == sorted(key.rank for key in keys)
    cohorts = [key.name for key in keys if key.kind == "Cohort"]
    assert cohorts.index("pool-spot") < cohorts.index("globex")


def test_render_twice_gives_the_same_and_an_empty_difference() -> None:
    first, second = rendered(*CASES["worker"]), rendered(*CASES["worker"])
    assert first == second
    assert [change for a, b in zip(first, second, strict=True) for change in changes(a, b)] == []


def test_every_object_names_its_owner() -> None:
    for document in rendered(*CASES["manager"]):
        owner = names.owner_of(document)
        assert owner is not None
        assert owner.installation == "test"
        assert owner.generation >= 1
        assert ":" in owner.subject


def test_manager_without_workers_still_holds_its_queues_behind_the_check() -> None:
    place = ClusterPlace("manager", True)
    documents = rendered(place, replace(SITE, has_multikueue=True))
    kinds = [document["kind"] for document in documents]
    assert "MultiKueueConfig" not in kinds
    assert "AdmissionCheck" in kinds
    queue = next(document for document in documents if document["kind"] == "ClusterQueue")
    assert queue["spec"]["admissionChecksStrategy"] == {
        "admissionChecks": [{"name": "gpu-budget-portal"}]
    }


def test_host_is_unlimited_and_lends_nothing() -> None:
    documents = rendered(ClusterPlace("east", False, host_resources=("cpu", "rdma/ib")))
    for document in documents:
        if document["kind"] != "ClusterQueue":
            continue
        group = document["spec"]["resourceGroups"][-1]
        assert group["coveredResources"] == ["cpu", "rdma/ib"]
        for resource in group["flavors"][0]["resources"]:
            assert resource["nominalQuota"] == UNLIMITED
            assert resource["borrowingLimit"] == resource["lendingLimit"] == "0"


def test_quota_of_an_unknown_flavor_is_refused() -> None:
    fleet = sample()
    without = replace(fleet, flavors=tuple(f for f in fleet.flavors if f.name != "l4"))
    with pytest.raises(KeyError):
        rendered(ClusterPlace("east", False), fleet=without)


amounts = st.integers(min_value=0, max_value=512)


@given(committed=amounts, burst=amounts, lendable=amounts)
def test_a_queue_always_has_three_numbers(committed: int, burst: int, lendable: int) -> None:
    own = Line("h100", committed, committed + burst, min(lendable, committed))
    fleet = promises().flavor("h100").account("acme").workspace("acme", "a", own).build()
    documents = rendered(ClusterPlace("manager", True), fleet=fleet)
    queue = next(document for document in documents if document["kind"] == "ClusterQueue")
    (resource,) = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    assert resource == {
        "name": "nvidia.com/gpu",
        "nominalQuota": str(committed),
        "borrowingLimit": str(burst),
        "lendingLimit": str(own.lendable),
    }
