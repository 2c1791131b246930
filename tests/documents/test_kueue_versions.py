"""What a version of Kueue is, can do and lacks."""

from __future__ import annotations

import pytest

from clusters.documents.kueue_versions import (
    FEATURES,
    FOLLOWED,
    FORMER,
    REMOVED_GATES,
    Release,
    Support,
    has_setting,
    lacking,
    line_of_crds,
    removed_gates,
    support_of,
    unknown_settings,
)
from clusters.kueue.feature_gates import GATES
from tests.controlplane import build

STEPS = {"multiKueue": {"incrementalDispatcherConfig": {"stepSize": 2}}}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("v0.19.2", Release(0, 19, 2), id="a tag"),
        pytest.param("0.18", Release(0, 18), id="without a patch"),
        pytest.param("v0.20.0-rc.1", Release(0, 20), id="a candidate"),
        pytest.param("v0.19.2+build.7", Release(0, 19, 2), id="a build"),
        pytest.param("", None, id="nothing"),
        pytest.param("main", None, id="a branch"),
        pytest.param("v0.19.2x", None, id="something behind it"),
        pytest.param("v99999.0.0", None, id="no version that will ever be"),
        pytest.param("v0.1٩", None, id="other digits"),
    ],
)
def test_release_is_read_from_a_tag_alone(text: str, want: Release | None):
    assert Release.read(text) == want


def test_releases_are_in_order():
    assert Release(0, 9) < Release(0, 18, 2) < Release(0, 19) < Release(0, 19, 1) < Release(1, 0)
    assert str(Release(0, 19)) == "0.19.0"
    assert FOLLOWED.is_of(FORMER) and not FORMER.is_of(FOLLOWED)
    assert Release(0, 19).is_of(FOLLOWED), "of one minor version"


@pytest.mark.parametrize(
    ("release", "want"),
    [
        (None, Support.UNKNOWN),
        (Release(0, 17, 9), Support.UNTRIED),
        (Release(0, 18), Support.UPGRADE),
        (Release(0, 19), Support.FULL),
        (Release(0, 20), Support.UNTRIED),
    ],
)
def test_support_goes_by_the_minor_version(release: Release | None, want: Support):
    assert support_of(release) is want


def test_followed_and_former_are_the_versions_that_tests_run():
    assert f"v{FOLLOWED}" == build.kueue_version("kueue")
    assert f"v{FORMER}" == build.kueue_version(build.OLDER_KUEUE)


def test_an_older_version_lacks_what_came_later():
    assert lacking(FOLLOWED) == ()
    assert lacking(FORMER) == FEATURES
    assert {feature.name for feature in lacking(Release(0, 19, 1))} == {"Nominations are cleared"}


def test_every_feature_says_what_an_upgrade_does_in_sentences():
    for feature in FEATURES:
        assert FORMER < feature.since <= FOLLOWED, feature.name
        for text in (feature.without, feature.upgrade):
            assert text.endswith("."), feature.name
    assert len({feature.name for feature in FEATURES}) == len(FEATURES)


def test_settings_that_an_older_version_does_not_know_are_named():
    assert unknown_settings(FORMER, STEPS) == ("multiKueue.incrementalDispatcherConfig",)
    assert unknown_settings(FOLLOWED, STEPS) == ()
    assert unknown_settings(FORMER, {"multiKueue": "x"}) == ()


def test_removed_gates_are_gates_no_more():
    assert not set(REMOVED_GATES) & GATES.keys()
    named = {"featureGates": {"LendingLimit": True, "PriorityBoost": True}}
    assert removed_gates(named) == ("LendingLimit",)
    assert removed_gates({"featureGates": ["LendingLimit"]}) == ()


def test_setting_is_found_by_its_path():
    assert has_setting({"a": {"b": None}}, "a.b")
    assert not has_setting({"a": ["b"]}, "a.b")


def schemas(kind: str) -> dict:
    spec = {"properties": {"clusters": {"type": "array", "x-kubernetes-list-type": kind}}}
    return {"io.x-k8s.kueue.v1beta2.MultiKueueConfig": {"properties": {"spec": spec}}}


@pytest.mark.parametrize(
    ("published", "want"),
    [
        pytest.param(schemas("atomic"), "0.19", id="in order"),
        pytest.param(schemas("set"), "0.18", id="a set"),
        pytest.param(schemas("map"), "", id="something else"),
        pytest.param({}, "", id="nothing"),
        pytest.param(
            {"io.x-k8s.kueue.v1beta2.MultiKueueConfig": {"properties": "x"}}, "", id="no schema"
        ),
    ],
)
def test_crds_tell_their_minor_version(published: dict, want: str):
    assert line_of_crds(published) == want
