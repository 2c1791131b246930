"""The least rights: what they hold, and what they must never hold."""

from __future__ import annotations

import pytest
import yaml

from clusters.manifests import names
from clusters.manifests.policies import PolicyWish, policy_documents, policy_names
from clusters.manifests.rights import (
    Post,
    multikueue_rules,
    portal_rules,
    questions,
    role_documents,
)
from tests.golden import assert_golden

POSTS = {
    "manager-kueue": Post(True, False, "test", workers=("east", "west")),
    "manager-portal": Post(True, True, "test", workers=("east", "west")),
    "worker-kueue": Post(False, False, "test"),
    "worker-portal": Post(False, True, "test"),
}


@pytest.mark.parametrize("name", POSTS)
def test_rights_are_as_in_the_golden_file(name: str) -> None:
    post = POSTS[name]
    documents = role_documents(
        portal_rules(post), account=names.PORTAL_ACCOUNT, name="gpu-budget-portal"
    )
    if not post.is_manager:
        documents += role_documents(
            multikueue_rules(), account=names.MULTIKUEUE_ACCOUNT, name="gpu-budget-multikueue"
        )[1:]
    documents += policy_documents(PolicyWish(post=post))
    text = yaml.safe_dump_all(documents, sort_keys=False)
    assert_golden(f"manifests/rights-{name}.yaml", text)


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


def test_tokens_are_only_minted_for_the_multikueue_account() -> None:
    asked = [
        access
        for access in questions(portal_rules(POSTS["worker-kueue"]))
        if access.subresource == "token"
    ]
    assert [(access.verb, access.name) for access in asked] == [("create", "multikueue")]


def test_local_jobs_need_no_policy_against_them() -> None:
    strict = {name for _, name in policy_names(PolicyWish(POSTS["worker-kueue"]))}
    open_ = {
        name for _, name in policy_names(PolicyWish(POSTS["worker-kueue"], allows_local_jobs=True))
    }
    assert strict - open_ == {"gpu-budget-test-jobs-through-manager"}
