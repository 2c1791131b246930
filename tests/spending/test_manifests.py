"""The check on the clusters: which queues wait for it, where, and the rights to answer it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from budgets.plan import ClusterPlace, plan_quota
from clusters.manifests import names
from clusters.manifests.rbac import Post, questions
from clusters.manifests.rights import portal_rules
from clusters.manifests.translate import Site, render
from clusters.selectors.places import site_of
from tests.builders import line, promises

MANAGER = ClusterPlace("hub", is_manager=True, workers=("east",))
SITE = Site("test", has_multikueue=True)


def rendered(place: ClusterPlace = MANAGER, site: Site = SITE, *, checks_spend: bool = True):
    """Key kind/name -> document of a fleet in which acme-vision has a hard rule or none."""
    made = promises().flavor("h100").account("acme")
    made = made.workspace("acme", "speech", line("h100", 8)).workspace(
        "acme", "vision", line("h100", 8)
    )
    fleet = made.build()
    first, second = fleet.workspaces
    fleet = replace(fleet, workspaces=(first, replace(second, checks_spend=checks_spend)))
    documents = render(plan_quota(fleet, place), site=site)
    return {f"{x['kind']}/{x['metadata']['name']}": x for x in documents}


def checks_of(documents, queue: str) -> list[str]:
    strategy = documents[f"ClusterQueue/{queue}"]["spec"].get("admissionChecksStrategy") or {}
    return [item["name"] for item in strategy.get("admissionChecks") or []]


def test_only_the_managers_queue_of_a_budget_with_a_hard_rule_waits_for_the_check():
    found = rendered()
    assert checks_of(found, "acme-vision") == [names.ADMISSION_CHECK, names.SPEND_CHECK]
    assert checks_of(found, "acme-speech") == [names.ADMISSION_CHECK]
    check = found[f"AdmissionCheck/{names.SPEND_CHECK}"]
    assert check["spec"] == {"controllerName": "gpu-budget-portal.dev/spend-test"}
    worker = rendered(ClusterPlace("east", is_manager=False), Site("test"))
    assert not checks_of(worker, "acme-vision")
    assert f"AdmissionCheck/{names.SPEND_CHECK}" not in worker


@pytest.mark.parametrize("why", ["no rule", "setting"])
def test_without_a_hard_rule_or_by_the_setting_there_is_no_check(why):
    site = replace(SITE, checks_spend=why != "setting")
    found = rendered(site=site, checks_spend=why == "setting")
    assert checks_of(found, "acme-vision") == [names.ADMISSION_CHECK]
    assert f"AdmissionCheck/{names.SPEND_CHECK}" not in found


@pytest.mark.parametrize(("setting", "want"), [("wait", True), ("start", False)])
def test_the_setting_decides_what_jobs_meet_without_a_portal(settings, setting, want):
    settings.PORTAL_SPEND_CHECK = setting
    assert site_of(is_manager=True, generation=1).checks_spend is want


@pytest.mark.parametrize("is_portal_mode", [True, False])
def test_a_manager_may_answer_and_a_worker_needs_nothing_for_it(is_portal_mode):
    def rights(*, is_manager: bool) -> set[tuple[str, str, str]]:
        post = Post(is_manager, is_portal_mode, "test", workers=("east",) if is_manager else ())
        return {(x.verb, x.resource, x.subresource) for x in questions(portal_rules(post))}

    manager = rights(is_manager=True)
    assert {
        ("patch", "admissionchecks", "status"),
        ("patch", "workloads", "status"),
        ("patch", "workloads", ""),
        ("watch", "workloads", ""),
        ("watch", "admissionchecks", ""),
    } <= manager
    assert ("patch", "admissionchecks", "status") not in rights(is_manager=False)
    worker = Post(False, is_portal_mode, "test")
    leases = {x.name for x in questions(portal_rules(worker)) if x.resource == "leases"}
    assert "gpu-budget-spend-test" not in leases
