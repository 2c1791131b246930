"""The numbers of a sentence are of one moment: each is worked out again from the others."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from datetime import timedelta

import pytest

from clusters.explaining.evidence import read_evidence
from clusters.explaining.findings import explained
from clusters.kueue.configuration import DEFAULT_STRATEGIES, Configuration
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.cycle.replay import START
from clusters.kueue.explanation.why import Explainer
from clusters.reconcile.explained.reporter import evidence_of, waiting_keys
from tests.explained.evidence import EVERYTHING
from tests.kueue.test_conformance import QUOTA, recordings

SECTIONS = {
    "namespaces": "Namespace",
    "resourceFlavors": "ResourceFlavor",
    "cohorts": "Cohort",
    "clusterQueues": "ClusterQueue",
    "localQueues": "LocalQueue",
}
WAITS = re.compile(r"Waits for (?P<asked>[\d,]+) \S+: (?P<needed>[\d,]+) more (?:is|are) needed")
USED = re.compile(r"(?P<used>[\d,]+) of its (?P<nominal>[\d,]+) committed")
BURST = re.compile(r"(?P<burst>[\d,]+) of the (?P<limit>[\d,]+) that it may borrow")
HELD = re.compile(r"others hold (?P<held>[\d,]+) of the (?P<left>[\d,]+) left")
LENT = re.compile(r"Starts when (?P<some>[\d,]+|the)(?: of the)? (?P<lent>[\d,]+) \S+ lent to")


def whole(text: str) -> int:
    return int(text.replace(",", ""))


def read(pattern: re.Pattern[str], text: str) -> dict[str, int]:
    found = pattern.search(text)
    return {key: whole(value) for key, value in found.groupdict().items()} if found else {}


def wrong(sentence: str) -> str:
    """What does not add up in a sentence; empty when it does, or has no numbers of quota."""
    waits = read(WAITS, sentence)
    if not waits or "may" not in sentence:
        return ""
    used, burst, held = (read(pattern, sentence) for pattern in (USED, BURST, HELD))
    left = used.get("nominal", 0) - used.get("used", 0)
    left += burst.get("limit", 0) - burst.get("burst", 0)
    if held and held["left"] != left:
        return f"{held['left']} left, where it says {left}"
    free = left - held.get("held", 0)
    if waits["asked"] - waits["needed"] != free:
        return f"{waits['asked']} - {waits['needed']} is not the {free} that are free"
    return ""


@pytest.mark.parametrize(
    ("sentence", "is_right"),
    [
        ("Waits for 8 H100: 2 more are needed; 14 of its 16 committed are in use and none may "
         "be borrowed.", False),
        ("Waits for 8 H100: 6 more are needed; 14 of its 16 committed are in use and none may "
         "be borrowed.", True),
        ("Waits for 8 H100: 6 more are needed; 14 of its 16 committed are in use and 0 of the 8 "
         "that it may borrow; others hold 8 of the 10 left.", True),
        ("Waits for 8 H100: 6 more are needed; 14 of its 16 committed are in use and 0 of the 8 "
         "that it may borrow.", False),
    ],
)  # fmt: skip
def test_what_does_not_add_up_is_found(sentence: str, is_right: bool):
    assert (wrong(sentence) == "") is is_right


def test_sentences_of_recorded_scenarios_add_up():
    """Between the cycles as well as at rest: what was decided before is told as of now."""
    kinds: Counter[str] = Counter()
    with gzip.open(recordings(QUOTA), "rt", encoding="utf-8") as lines:
        for index, line in enumerate(lines):
            if index % 40 == 0:
                for sentence in sentences(json.loads(line)):
                    kinds[sentence.split()[0]] += 1
                    assert wrong(sentence) == "", sentence
    assert kinds["Waits"] > 200


def sentences(scenario: dict) -> list[str]:
    strategies = DEFAULT_STRATEGIES if scenario["fairSharing"] else ()
    engine, now, told = Engine(Configuration(fair_strategies=strategies)), START, []
    for section, kind in SECTIONS.items():
        for document in scenario[section]:
            engine.upsert(document, now=now, kind=kind)
    for step in scenario["steps"]:
        now += timedelta(minutes=1)
        for document in step["event"].get("arrive", ()):
            engine.upsert(document, now=now, kind="Workload")
        for name in step["event"].get("finish", ()):
            engine.delete("Workload", key=f"ns/{name}", now=now)
            told += _told(engine, now)  # nobody has looked at those that wait since
        for _ in range(4):
            now += timedelta(seconds=1)
            for preempted in engine.cycle(now).preempted:
                engine.release_evicted(preempted.key, now=now)
            told += _told(engine, now)
    return told


def _told(engine: Engine, now) -> list[str]:
    explain = Explainer(engine, now=now).explain
    found = (explain(key) for key in waiting_keys(engine))
    return [
        explained(read_evidence(evidence_of(each, {})), EVERYTHING).sentence
        for each in found
        if each is not None
    ]
