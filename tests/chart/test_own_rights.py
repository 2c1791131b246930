"""The chart gives the portal's own service account the rights that the code asks for, no others."""

from __future__ import annotations

import json
import os
import random

import pytest

from tests.chart import own_rights
from tests.chart.test_files import CHART, SCHEMA

FILE = CHART / "files" / "own-rights.yaml"
IDENTITIES = dict(own_rights.identities())


def test_rights_in_the_chart_are_those_of_the_code() -> None:
    want = own_rights.chart_file()
    if os.environ.get("UPDATE_GOLDEN"):
        FILE.write_text(want)
    assert FILE.read_text() == want, "UPDATE_GOLDEN=1 writes it anew"


@pytest.mark.parametrize("name", IDENTITIES)
def test_rules_of_each_choice_of_values_add_up_to_those_of_the_code(name: str) -> None:
    """Whatever is chosen together: no rule depends on three conditions, and none goes away."""
    rules = IDENTITIES[name]
    found = own_rights.needed(rules)
    rng = random.Random(name)
    some = [rng.sample(own_rights.CONDITIONS, rng.randint(0, 8)) for _ in range(60)]
    for chosen in (own_rights.CONDITIONS, *some):
        have = {rule for needs, rule in found if needs <= set(chosen)}
        assert have == set(rules(chosen)), chosen


def test_schema_knows_the_kinds_and_the_other_conditions() -> None:
    own = SCHEMA["properties"]["ownCluster"]["properties"]
    assert own["kinds"]["items"]["enum"] == list(own_rights.KINDS_BY_NAME)
    assert own["also"]["items"]["enum"] == list(own_rights.ALSO)
    assert own["purpose"]["enum"] == list(own_rights.PURPOSES)
    assert own["mode"]["enum"] == list(own_rights.MODES)


def test_no_rule_of_the_chart_writes_rights_or_reads_a_secret_that_has_no_name() -> None:
    text = json.dumps(own_rights.chart_file())
    assert "rbac.authorization.k8s.io" not in text and "'*'" not in text
    for rules in IDENTITIES.values():
        for _, rule in own_rights.needed(rules):
            if "secrets" in rule.resources:
                assert rule.resource_names or rule.verbs == ("create",)
