"""The numbers in a sentence of why a job waits: each is read, and worked out again.

A sentence with a number that no pattern here knows is a fault: whoever writes a new one says here
what it has to come to.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from itertools import combinations
from typing import Any

from clusters.explaining.evidence import Evidence, Pair, read_evidence
from clusters.explaining.findings import explained
from clusters.explaining.names import Names
from clusters.kueue.cycle.engine import Engine
from clusters.kueue.explanation.why import Explainer
from clusters.kueue.workload.workloads import Workload, scaled
from clusters.reconcile.admission.body import EngineReader
from clusters.reconcile.explained.reporter import evidence_of, waiting_keys

_UNITS = {
    **dict.fromkeys(("CPU", "CPUs"), (1000, 0)),
    **{name: (size, size // 20) for name, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20))},
}
_NUMBER = r"\d[\d,]*(?:\.\d+)?"
_UNIT = r"(?: (?:CPUs?|pods?|(?:TiB|GiB|MiB|bytes) of (?:memory|local disk)))?"
_THING = r"(?: NAME(?: of NAME)?)?"


def _pattern(text: str) -> re.Pattern[str]:
    """``<asked>`` stands for an amount of that name, ``NAME`` for what has one."""
    amounts = re.sub(r"<(\w+)>", lambda at: f"(?P<{at[1]}>{_NUMBER}{_UNIT}){_THING}", text)
    return re.compile(amounts)


PATTERNS = {
    # Not of the portal: what a cluster, Kueue, a check or a person said.
    "quoted": _pattern(
        r"the cluster says: .*|suits it \(.*\)|the check [^:;]*: .*|set it aside.*: .*|\(\".*\"\)"
        r"|a LimitRange of its namespace allows: .*"
    ),
    "moment": re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC|tried again at \d\d:\d\d UTC"),
    "cap": re.compile(rf"cap of (?P<cap>{_NUMBER}) (?:[A-Z]{{3}}|GPU-hours)(?: [a-z]+)+"),
    "needs": _pattern(r"[Ww]aits for <asked>: <needed> more (?:is|are) needed"),
    "more": _pattern(r"[Ww]aits for <needed> more"),
    "asks": _pattern(r"[Ww]aits for <asked>(?=[;.]|$)"),
    "used": _pattern(r"<used> of its <nominal> committed (?:is|are) in use"),
    "burst": _pattern(r"<burst> of the <limit> that it may borrow"),
    "held": _pattern(r"others hold <held> of the <left> left"),
    "some": _pattern(r"others hold some of the <left> left"),
    "lent": _pattern(r"[Ss]tarts when the <lent> lent to"),
    "lent in part": _pattern(r"[Ss]tarts when <needed> of the <lent> lent to"),
    "too large": _pattern(
        r"asks for <total>, and its budget (?:never has|has no) more than <most>"
    ),
    "no place": _pattern(r"[Ii]ts pods with <total> cannot be placed together"),
    "fits": _pattern(r"<fits> of <pods> (?:pod|slice)s would fit"),
    "free": _pattern(r"though <free> are free in the quota"),
    "room": _pattern(r"with most room has <room> free, and <nodes> are free on all nodes"),
    "behind": _pattern(r"[Ii]t is number <position> in its queue"),
    "checks": _pattern(r", and for <checks> more"),
}


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of a sentence in the resource's own unit; ``off``: as far as it is rounded."""

    value: Decimal
    off: int = 0


@dataclass
class Sums:
    """Reads sentences, and counts the kinds of numbers that it met.

    Attributes:
        met: How often each of ``PATTERNS`` was met.
    """

    met: Counter[str] = field(default_factory=Counter)

    def numbers(self, sentence: str, names: Collection[str] = ()) -> dict[str, Amount]:
        """Every number of a sentence by what it counts.

        Args:
            names: Of flavors and of whatever has digits in its name.

        Raises:
            AssertionError: It has a number that nobody knows.
        """
        rest, found = sentence, dict[str, Amount]()
        for name in sorted(filter(None, names), key=len, reverse=True):
            rest = re.sub(rf"(?<![\w/]){re.escape(name)}(?![\w/])", "NAME", rest)
        for kind, pattern in PATTERNS.items():
            if match := pattern.search(rest):
                self.met[kind] += 1
                found |= {key: _amount(text) for key, text in match.groupdict().items() if text}
                rest = rest[: match.start()] + rest[match.end() :]
        assert not re.search(r"\d", rest), f"a number that nobody works out again: {sentence}"
        return found

    def wrong(self, sentence: str, names: Collection[str] = ()) -> str:
        """What does not add up in a sentence by itself; empty when all of it does."""
        return _wrong(self.numbers(sentence, names))

    def check(self, engine: Engine, documents: Mapping[str, Any], *, now: datetime) -> None:
        """Work out again what an engine says of everything that waits.

        Args:
            documents: Workloads by key, for what their checks say.

        Raises:
            AssertionError: A sentence is not what quota, holdings and requests come to.
        """
        explain, names = Explainer(engine, now=now).explain, _names(engine)
        for key in waiting_keys(engine):
            found = explain(key)
            if found is None:
                continue
            evidence = read_evidence(evidence_of(found, documents.get(key, {})))
            for reader in (Names(None), _owner(evidence)):
                sentence = explained(evidence, reader).sentence
                numbers = self.numbers(sentence, names)
                fault = _wrong(numbers) or _untrue(sentence, numbers, engine, evidence, key)
                assert not fault, f"{key}: {sentence} {fault}"


class SumsReader(EngineReader):
    """Works out again what the engine of a shift says, turn by turn."""

    def __init__(self, sums: Sums) -> None:
        self._sums = sums

    def work(self, engine: Engine, documents: Mapping[str, Any], *, now: datetime) -> None:
        self._sums.check(engine, documents, now=now)


def _wrong(told: Mapping[str, Amount]) -> str:
    number = {key: each.value for key, each in told.items() if not each.off}
    left = number.get("nominal", 0) - number.get("used", 0)
    left += number.get("limit", 0) - number.get("burst", 0)
    if "left" in number and number["left"] != left:
        return f"{number['left']} left, where it says {left}"
    free = left - number.get("held", 0)
    is_whole = {"asked", "needed"} <= number.keys() and {"nominal", "limit"} & number.keys()
    if is_whole and number["asked"] - number["needed"] != free:
        return f"{number['asked']} - {number['needed']} is not the {free} that are free"
    for less, more in (("needed", "asked"), ("needed", "lent"), ("used", "nominal"),
                       ("burst", "limit"), ("held", "left"), ("room", "nodes")):  # fmt: skip
        if less in number and more in number and number[less] > number[more]:
            return f"{less} is {number[less]}, more than {more}, {number[more]}"
    for less, more in (("most", "total"), ("fits", "pods"), ("room", "total")):
        if less in number and more in number and number[less] >= number[more]:
            return f"{less} is {number[less]}, not less than {more}, {number[more]}"
    return ""


def _untrue(
    sentence: str, told: Mapping[str, Amount], engine: Engine, evidence: Evidence, key: str
) -> str:
    """Numbers that are not what is there now, by every flavor that the sentence may mean."""
    faults = []
    named = [pair for pair in evidence.quota if pair.flavor in re.findall(r"[\w-]+", sentence)]
    for pair in named or evidence.quota:
        facts = _facts(engine, key, evidence.cluster_queue, pair)
        off = [
            f"{name} is {value.value} and should be {' or '.join(map(str, sorted(facts[name])))}"
            for name, value in told.items()
            if name in facts and not any(abs(value.value - n) <= value.off for n in facts[name])
        ]
        if not off:
            return ""
        faults.append(f"{'/'.join(pair)}: {', '.join(off)}")
    return "; ".join(faults)


def _facts(engine: Engine, key: str, name: str, pair: Pair) -> dict[str, set[int]]:
    """What each number may be: from requests, from what is held, from the quota as declared."""
    state = engine.state
    workload, queue = state.workloads[key], state.snapshot.queues[name]
    here = [each for each in state.workloads.values() if _is_in(each, name)]
    used = sum(each.usage().get(pair, 0) for each in here)
    nominal, most = queue.spec.quotas[pair].nominal, queue.node.potential(pair)
    free = max(0, queue.node.available(pair))
    ceiling = most - nominal
    burst = max(0, used - nominal)
    left = max(0, nominal - used) + max(0, ceiling - burst)
    asked = _asked(workload, state.workloads.get(workload.replaces), pair)
    pending = state.queues.queue(name)
    order = [*pending.active_keys(), *pending.parked_keys()] if pending is not None else []
    return {
        "asked": asked,
        "total": {*asked, max(_asked(workload, None, pair))},
        "needed": {max(0, each - free) for each in asked},
        "used": {max(0, min(used, nominal))},
        "nominal": {nominal},
        "burst": {burst},
        "limit": {ceiling},
        "left": {left},
        "held": {left - free},
        "lent": {max(0, max(0, nominal - used) - free)},
        "most": {most},
        "free": {free},
        "position": {order.index(key) + 1} if key in order else set(),
    }


def _is_in(workload: Workload, name: str) -> bool:
    return workload.reservation is not None and workload.reservation.cluster_queue == name


def _asked(workload: Workload, older: Workload | None, pair: Pair) -> set[int]:
    """What its pod sets ask for, each and together, beyond what the slice before them holds."""
    amounts = [
        scaled(each.shape.requests.amounts, workload.remaining_count(each)).get(pair.resource, 0)
        for each in workload.pod_sets
    ]
    for index, hold in enumerate(older.held() if older is not None else ()):
        if hold.flavors.get(pair.resource) == pair.flavor:
            amounts[index] -= hold.amounts[pair.resource]
    return {
        sum(part) for size in range(1, len(amounts) + 1) for part in combinations(amounts, size)
    }


def _amount(text: str) -> Amount:
    number, _, unit = text.partition(" ")
    size, off = _UNITS.get(unit.partition(" ")[0], (1, 0))
    return Amount(Decimal(number.replace(",", "")) * size, off)


def _names(engine: Engine) -> set[str]:
    snapshot = engine.state.snapshot
    resources = (pair.resource for queue in snapshot.queues.values() for pair in queue.spec.quotas)
    topologies = (flavor.topology for flavor in snapshot.flavors.values())
    numbered = {*snapshot.queues, *snapshot.cohorts, *resources, *topologies}
    return {*snapshot.flavors, *(name for name in numbered if re.search(r"\d", name or ""))}


def _owner(evidence: Evidence) -> Names:
    """Of the workspace that the job is in, and of no other."""
    return Names({evidence.cluster_queue: "Own"})


def sentences(text: str, clusters: Collection[str]) -> Iterator[str]:
    """What is said of a job that waits on several clusters, one by one."""
    named = "|".join(map(re.escape, clusters))
    yield from re.split(rf"waits for a worker[.:] |; or |; (?=(?:{named}): )", text)
