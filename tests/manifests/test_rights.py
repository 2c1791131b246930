"""The least rights: what they hold, and what they must never hold."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml

from clusters.documents.resources import Resource
from clusters.jobs.table import suspendable
from clusters.manifests import names
from clusters.manifests.names import Document
from clusters.manifests.policies import policy_documents, policy_names
from clusters.manifests.rbac import Post, questions, role_documents
from clusters.manifests.rights import multikueue_rules, portal_rules
from clusters.manifests.wish import PolicyWish
from tests.golden import assert_golden

POSTS = {
    "manager-kueue": Post(True, False, "test", workers=("east", "west")),
    "manager-portal": Post(True, True, "test", workers=("east", "west")),
    "worker-kueue": Post(False, False, "test"),
    "worker-portal": Post(False, True, "test"),
    "single-kueue": Post(False, False, "test", is_single=True),
    "single-portal": Post(False, True, "test", is_single=True),
}


@pytest.mark.parametrize("name", POSTS)
def test_rights_are_as_in_the_golden_file(name: str) -> None:
    post = POSTS[name]
    documents = role_documents(
        portal_rules(post), account=names.PORTAL_ACCOUNT, name="gpu-budget-portal"
    )
    if not post.takes_jobs:
        documents += role_documents(
            multikueue_rules(), account=names.MULTIKUEUE_ACCOUNT, name="gpu-budget-multikueue"
        )[1:]
    documents += tuple(d for d in policy_documents(PolicyWish(post=post)) if not is_alike(d))
    text = yaml.safe_dump_all(documents, sort_keys=False)
    assert_golden(f"manifests/rights-{name}.yaml", text)


def is_alike(document: Document) -> bool:
    """Of kinds that queue as a whole three say it all: built in, with lists, with maps."""
    shown = {"jobs", "jobsets", "pytorchjobs"}
    others = {kind.resource.plural for kind in suspendable()} - shown
    return document["metadata"]["name"].rpartition("-")[2] in others


@pytest.mark.parametrize("name", POSTS)
def test_portal_never_deletes_namespaces_nor_writes_rights(name: str) -> None:
    for access in questions(portal_rules(POSTS[name])):
        assert (access.resource, access.verb) != ("namespaces", "delete")
        assert access.group != "rbac.authorization.k8s.io"
        assert "*" not in (access.verb, access.group, access.resource)
        if access.group == "admissionregistration.k8s.io":
            assert access.verb in ("get", "list")


@pytest.mark.parametrize("name", POSTS)
def test_secrets_are_only_ever_reached_by_their_own_name(name: str) -> None:
    asked = [
        access for access in questions(portal_rules(POSTS[name])) if access.resource == "secrets"
    ]
    assert {access.verb for access in asked} <= {"create", "get", "patch", "delete"}
    assert all(access.name for access in asked if access.verb != "create")
    assert all(access.namespace == "kueue-system" for access in asked)
    assert bool(asked) is (name == "manager-kueue")


BOUND_OTHERWISE = {
    "namespaces": "a policy of their own",
    "events": "they start nothing, and stop nothing",
    "localqueues/status": "it decides nothing; the portal keeps that of every queue",
}
CLUSTER_WIDE = {
    "resourceflavors", "cohorts", "clusterqueues", "topologies", "admissionchecks",
    "multikueueconfigs", "multikueueclusters",
}  # fmt: skip


@pytest.mark.parametrize("name", POSTS)
def test_what_may_be_written_in_every_namespace_is_bound_to_workspaces(name: str) -> None:
    """By what the identities may write, whatever that is: statuses, too."""
    post = replace(POSTS[name], kinds=(*KINDS, Resource.guessed("Pod", "v1", "")), nominates=True)
    (policy, _) = [
        document
        for document in policy_documents(PolicyWish(post))
        if document["metadata"]["name"] == "gpu-budget-test-own-workspaces-only"
    ]
    bound = {
        (group, resource)
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    for right in questions((*portal_rules(post), *multikueue_rules(post.kinds))):
        if right.namespace or right.verb in ("get", "list", "watch"):
            continue
        written = f"{right.resource}/{right.subresource}".rstrip("/")
        if right.resource in CLUSTER_WIDE or written in BOUND_OTHERWISE:
            continue
        which = {written, f"{right.resource}/*"} if right.subresource else {written}
        assert {(right.group, each) for each in which} & bound, right


@pytest.mark.parametrize("name", ["single-kueue", "single-portal"])
def test_a_cluster_of_its_own_asks_for_nothing_of_multikueue(name: str) -> None:
    asked = questions(portal_rules(POSTS[name]))
    assert not {r for r in asked if "multikueue" in r.resource or r.resource == "serviceaccounts"}
    assert ("create", "admissionchecks") in {(right.verb, right.resource) for right in asked}


def test_tokens_are_only_minted_for_the_multikueue_account() -> None:
    asked = [
        access
        for access in questions(portal_rules(POSTS["worker-kueue"]))
        if access.subresource == "token"
    ]
    assert [(access.verb, access.name) for access in asked] == [("create", "multikueue")]


KINDS = (
    Resource.guessed("PipelineRun", "v1", "tekton.dev"),
    Resource.guessed("JobSet", "v1alpha2", "x.io"),
)


def of_group(rules, group: str) -> set[tuple[str, str, str]]:
    return {(a.verb, a.resource, a.subresource) for a in questions(rules) if a.group == group}


def test_named_kinds_get_the_least_rights_and_only_where_they_are_used() -> None:
    manager = replace(POSTS["manager-portal"], kinds=KINDS)
    assert of_group(portal_rules(manager), "tekton.dev") == {
        ("get", "pipelineruns", ""),
        ("list", "pipelineruns", ""),
        ("watch", "pipelineruns", ""),
        ("patch", "pipelineruns", "status"),
        ("delete", "pipelineruns", ""),
    }
    verbs = {verb for verb, _, _ in of_group(multikueue_rules(KINDS), "tekton.dev")}
    assert verbs == {"create", "get", "list", "watch", "delete"}
    # Under a live Kueue the portal only ever deletes one, for its owner; on workers not even that.
    for name in ("manager-kueue", "worker-portal", "worker-kueue"):
        post = replace(POSTS[name], kinds=KINDS)
        want = {("delete", "pipelineruns", "")} if name == "manager-kueue" else set()
        assert of_group(portal_rules(post), "tekton.dev") == want


@pytest.mark.parametrize("name", sorted(POSTS))
def test_actions_on_jobs_are_asked_for_and_not_needed(name: str) -> None:
    rules = portal_rules(POSTS[name])
    acting = [rule for rule in rules if rule.why.endswith("for its owner")]
    assert acting and not any(rule.is_required for rule in acting)
    verbs = {(rule.resources[0], verb) for rule in rules for verb in rule.verbs}
    assert {("workloads", "patch"), ("jobs", "delete")} <= verbs


def test_kinds_that_others_run_are_optional() -> None:
    assert not [
        a for a in questions(multikueue_rules(KINDS)) if a.is_required and a.group == "x.io"
    ]


def test_kinds_that_the_portal_queues_may_be_started_on_every_cluster_it_decides_on() -> None:
    job_set = Resource.guessed("JobSet", "v1alpha2", "jobset.x-k8s.io")
    for name, want_verbs in (
        ("worker-portal", {"get", "list", "watch", "patch"}),
        ("worker-kueue", set()),
        ("manager-kueue", {"delete"}),
    ):
        rules = portal_rules(replace(POSTS[name], kinds=(job_set,)))
        assert {verb for verb, _, _ in of_group(rules, "jobset.x-k8s.io")} == want_verbs


def test_local_jobs_need_no_policy_against_them() -> None:
    wish = PolicyWish(POSTS["worker-kueue"])

    def told(wish: PolicyWish) -> bool:
        return "This worker takes none directly" in json.dumps(policy_documents(wish))

    assert told(wish)
    assert not told(replace(wish, allows_local_jobs=True))
    assert not told(PolicyWish(POSTS["manager-kueue"]))


def test_what_an_older_api_server_does_not_know_comes_last() -> None:
    kinds = [kind for kind, _ in policy_names(PolicyWish(POSTS["worker-portal"]))]
    assert kinds[-1] == "MutatingAdmissionPolicy"
    assert set(kinds[:-1]) == {"ValidatingAdmissionPolicy"}


def test_pods_and_sets_get_the_verbs_by_which_they_start_and_stop_and_no_others() -> None:
    pod = Resource.guessed("Pod", "v1", "")
    sets = Resource.guessed("LeaderWorkerSet", "v1", "leaderworkerset.x-k8s.io")
    read = {"get", "list", "watch"}

    def verbs(rules, group: str, resource: str) -> set[str]:
        return {
            verb for verb, plural, sub in of_group(rules, group) if (plural, sub) == (resource, "")
        }

    worker = portal_rules(replace(POSTS["worker-portal"], kinds=(pod, sets)))
    assert verbs(worker, "", "pods") == {*read, "patch", "delete"}
    assert verbs(portal_rules(POSTS["worker-portal"]), "", "pods") == {*read, "patch"}
    assert verbs(worker, sets.group, sets.plural) == {*read, "patch"}
    remote = multikueue_rules((pod, sets))
    assert verbs(remote, "", "pods") == {*read, "create", "delete"}
    assert verbs(remote, sets.group, sets.plural) == {*read, "create", "delete", "patch"}
    manager = of_group(portal_rules(replace(POSTS["manager-portal"], kinds=(pod, sets))), "")
    assert ("patch", "pods", "status") in manager


def test_profiles_are_read_only_where_the_server_has_programs_for_them() -> None:
    group = "multicluster.x-k8s.io"
    manager = POSTS["manager-portal"]
    assert of_group(portal_rules(manager), group) == set()
    rules = portal_rules(replace(manager, has_profiles=True))
    assert of_group(rules, group) == {("get", "clusterprofiles", "")}
    kueue = portal_rules(replace(POSTS["manager-kueue"], has_profiles=True))
    assert of_group(kueue, group) == set()


def test_claims_are_read_where_their_devices_count_and_nowhere_else() -> None:
    """What claims are made from, and never a claim; needed where the portal decides."""
    for post in POSTS.values():
        assert not {r for r in questions(portal_rules(post)) if r.group == "resource.k8s.io"}
        counting = replace(post, counts_claims=True)
        asked = [r for r in questions(portal_rules(counting)) if r.group == "resource.k8s.io"]
        assert {(r.resource, r.verb) for r in asked} == {
            ("resourceclaimtemplates", verb) for verb in ("get", "list", "watch")
        }
        assert {r.is_required for r in asked} == {post.is_portal_mode}
        named = questions(portal_rules(replace(counting, counts_named_devices=True)))
        assert {r.resource for r in named if r.group == "resource.k8s.io"} == {
            "resourceclaimtemplates",
            "deviceclasses",
        }


@pytest.mark.parametrize("name", POSTS)
def test_who_claims_devices_asks_for_them_where_claims_count(name: str) -> None:
    """There a claim waits in a queue as any device does; elsewhere it is refused outright."""
    not_counted = "Devices of a resource claim are not counted"
    cannot_change = "they cannot be changed: submit another job"
    for post in (POSTS[name], replace(POSTS[name], counts_claims=True)):
        said: dict[str, list[str]] = {}
        asks: dict[str, str] = {}
        for document in policy_documents(PolicyWish(post=post)):
            kind, spec = document["metadata"]["name"], document["spec"]
            told = [row["message"] for row in spec.get("validations", ())]
            assert told or document["kind"] != "ValidatingAdmissionPolicy"
            said.setdefault(kind, []).extend(told)
            for row in spec.get("variables", ()):
                if row["name"] == "asks":
                    asks[kind] = row["expression"]
            assert not (post.counts_claims and "variables.claims" in json.dumps(spec))
        jobs, pods = "gpu-budget-test-jobs", "gpu-budget-test-pods"
        for kind in (jobs, pods):
            assert (not_counted in " ".join(said[kind])) is not post.counts_claims
            assert ("resourceClaims" in asks[kind]) is post.counts_claims
        # Of a Job no API server lets anybody change them.
        assert cannot_change not in " ".join(said[jobs])
        told = " ".join(said["gpu-budget-test-pytorchjobs"])
        assert (cannot_change in told) is post.counts_claims
