"""Every sentence of why a job waits that the demo shows, in three roles: its numbers are true."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from django.test import Client

from budgets.models import Flavor, SpendRule
from clusters.models import Cluster
from tests.explained.arithmetic import PATTERNS, Amount, Sums, sentences
from tests.explained.demo_floor import Floor
from tests.web.figures import text_of
from tests.web.normal_form import parsed
from tests.web.test_totals import NOW, demo  # noqa: F401  a fixture

pytestmark = pytest.mark.django_db
TURNS, MOST = 150, 40
MET = {"needs", "asks", "used", "burst", "held", "some", "cap", "moment"}


def test_sentences_of_the_demo_are_true(demo: Mapping[str, Client]):  # noqa: F811
    floor, sums = Floor(NOW), Sums()
    for _ in range(TURNS):
        floor.turn()
        floor.check(sums)
    states = floor.store()
    names = {name for row in Flavor.objects.all() for name in (row.name, row.slug)}
    clusters = {name for row in Cluster.objects.all() for name in (row.name, row.slug)}
    names |= clusters
    caps = {None, *(Amount(row.amount) for row in SpendRule.objects.all())}
    told = 0
    for role, client in demo.items():
        for state in states[:MOST]:
            answer = client.get(f"/api/v1/workloads/{state.cluster.slug}/{state.uid}/why")
            if answer.status_code == 404 and role == "owner":
                continue  # of another account
            sentence = answer.json()["sentence"]
            page = client.get(f"/jobs/{state.cluster.slug}/{state.uid}/")
            assert sentence in text_of(parsed(page.content.decode())), (role, state.name)
            for part in sentences(sentence, clusters):
                assert sums.wrong(part, names) == "", (role, state.name, sentence)
                assert sums.numbers(part, names).get("cap") in caps, sentence
            told += 1
        assert role == "owner" or told > 10
    assert sums.met.keys() >= MET, MET - sums.met.keys()
    assert sums.met.keys() <= PATTERNS.keys()
