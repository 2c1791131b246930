"""Where the engine's decisions differ from what Kueue did. Pure.

Only what cannot be a matter of timing counts. What Kueue did is held against it when no way of
running the events leads there, all ways agree on something else, and too little happened before
for Kueue to have seen it in yet another way; what hangs on timing is passed over. What Kueue has
not done, and why it lets a workload wait, is held against the state at rest, which has no history.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from clusters.documents.keys import uid_of
from clusters.kueue.cycle.engine import BYPASSED_MESSAGE
from clusters.kueue.cycle.scheduler import PASSING_MESSAGES
from clusters.models import ShadowDifference
from clusters.reconcile.shadow.events import (
    Document,
    Fate,
    Said,
    WatchedEvent,
    admission_of,
    holds_quota,
    waiting_of,
)
from clusters.reconcile.shadow.replay import ReplayOutcome

Kind = ShadowDifference.Kind

# Reasons that the scheduler gives about quota; others are told by other controllers, or in passing.
_VERDICTS: Final = frozenset(
    {"WaitingForQuota", "ExceedsMaxQuota", "NoMatchingFlavor", "Misconfigured"}
)
# Said instead of them without the gate UnadmittedWorkloadsObservability, and of other things, too.
_UNSPECIFIC: Final = "Pending"
# Reason of Kueue → reasons of the engine that say the same; any other has to be the very same.
_SAME_REASONS: Final[Mapping[str, frozenset[str]]] = {_UNSPECIFIC: _VERDICTS}
# Said of a workload that is tried again at once, or that was not tried.
_IN_PASSING: Final = frozenset({BYPASSED_MESSAGE, *PASSING_MESSAGES})
FEW_FACTS: Final = 2
"""With more of them before a decision, Kueue may have seen them in ways that were not tried."""
_NO_FLAVOR: Final = "couldn't assign flavors to pod set "
# What hangs on quota and request alone, so that its amounts have to be the same.
_OF_QUOTA_ALONE: Final = "> maximum capacity ("
# An amount by itself; digits inside of a name stay.
_AMOUNT: Final = re.compile(r"(?<![\w/.-])\d+(?:\.\d+)?(?:[EPTGMk]i?|Ki|m)?(?![\w/.-])")


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Both sides of one difference.

    Attributes:
        is_omission: Kueue did not do something, or did not say it; it may still do so.
    """

    key: str
    uid: str
    kind: Kind
    portal_says: Said
    kueue_did: Said
    is_omission: bool = False


@dataclass(frozen=True, slots=True)
class EpisodeVerdict:
    """What a comparison found.

    Attributes:
        compared: decisions that were compared, the different ones included.
        passed_over: decisions that hang on timing.
        trees: of queues, that were compared.
    """

    compared: int = 0
    passed_over: int = 0
    differences: tuple[Disagreement, ...] = ()
    trees: frozenset[str] = frozenset()


def compare(
    events: Sequence[WatchedEvent],
    outcomes: Sequence[ReplayOutcome],
    *,
    rest: ReplayOutcome,
    workloads: Mapping[str, Document],
) -> EpisodeVerdict:
    """Compare what Kueue did with what the engine decides.

    Args:
        events: in the order in which they were told; they show what Kueue did.
        outcomes: of the engine for the same events, one for each way of running them.
        rest: what the engine would do with the state that Kueue has left.
        workloads: documents as they are in the end, by key.
    """
    return _Referee(events, outcomes, rest, workloads).verdict()


class _Referee:
    """Judges workload by workload, and counts."""

    def __init__(
        self,
        events: Sequence[WatchedEvent],
        outcomes: Sequence[ReplayOutcome],
        rest: ReplayOutcome,
        workloads: Mapping[str, Document],
    ) -> None:
        self._outcomes, self._rest, self._workloads = outcomes, rest, workloads
        self._said: dict[str, dict[Fate, Said]] = {}
        self._uids: dict[str, str] = {}
        self._reused: set[str] = set()
        self._count = self._passed = 0
        self._found: list[Disagreement] = []
        self._blurred: set[str] = set()
        facts = 0
        for event in events:
            # When Kueue learned of other quota cannot be told to the moment.
            facts += event.is_fact if event.kind == "Workload" else FEW_FACTS
            if event.kind == "Workload":
                self._learn(event, is_blurred=facts > FEW_FACTS)

    def verdict(self) -> EpisodeVerdict:
        for key, said in self._said.items():
            if key in self._reused:
                self._passed += 1
            elif Fate.PREEMPTED in said:
                self._judge_preemption(key, said[Fate.PREEMPTED])
            elif Fate.ADMITTED in said:
                self._judge_admission(key, said[Fate.ADMITTED])
            else:
                self._judge_waiting(key)
        self._judge_rest()
        return EpisodeVerdict(self._count, self._passed, tuple(self._found))

    def _learn(self, event: WatchedEvent, *, is_blurred: bool) -> None:
        uid = uid_of(event.document)
        if self._uids.setdefault(event.key, uid) != uid:
            # Two workloads took turns under one name.
            self._reused.add(event.key)
        if event.said is not None:
            known = self._said.setdefault(event.key, {})
            if is_blurred and known.keys() <= {Fate.PENDING}:
                self._blurred.add(event.key)
            known.setdefault(event.said.decision, event.said)

    def _judge_preemption(self, key: str, did: Said) -> None:
        says = [outcome.preempted.get(key) for outcome in self._outcomes]
        if any(item is not None and item.reason == did.reason for item in says):
            self._count += 1
        elif self._is_certain(key, says):
            stays = Said(Fate.ADMITTED, did.cluster_queue)
            self._differ(key, Kind.PREEMPTION, says[0] or stays, did)
        else:
            self._passed += 1

    def _judge_admission(self, key: str, did: Said) -> None:
        says = [outcome.admitted.get(key) for outcome in self._outcomes]
        if did in says:
            self._count += 1
        elif self._is_certain(key, says):
            self._differ(key, Kind.ADMISSION, says[0] or self._refusal(key), did)
        else:
            self._passed += 1

    def _is_certain(self, key: str, says: Sequence[Said | None]) -> bool:
        return key not in self._blurred and all(item == says[0] for item in says)

    def _judge_waiting(self, key: str) -> None:
        """Both let it wait; do they give the same reason?"""
        document = self._workloads.get(key)
        did = waiting_of(document) if document is not None else None
        says = self._rest.waiting.get(key)
        if did is None or key in self._rest.admitted or not _is_verdict(did):
            return
        if says is None or says.message in _IN_PASSING or did.message in _IN_PASSING:
            self._passed += 1
        elif _says_the_same(says, did):
            self._count += 1
        elif key in self._rest.doubles:
            self._passed += 1
        else:
            self._differ(key, Kind.PENDING, says, did, is_omission=True)

    def _judge_rest(self) -> None:
        """What the engine would do, with this history or without, that Kueue has not done."""
        for key, says in self._rest.admitted.items():
            if all(key in outcome.admitted for outcome in self._outcomes):
                self._differ(key, Kind.ADMISSION, says, self._standing(key), is_omission=True)
        for key, says in self._rest.preempted.items():
            if all(key in outcome.preempted for outcome in self._outcomes):
                self._differ(key, Kind.PREEMPTION, says, self._standing(key), is_omission=True)

    def _refusal(self, key: str) -> Said:
        """What the engine says of a workload that it does not admit."""
        return next(
            (outcome.waiting[key] for outcome in self._outcomes if key in outcome.waiting),
            Said(Fate.PENDING),
        )

    def _standing(self, key: str) -> Said:
        """How Kueue left a workload."""
        document = self._workloads.get(key)
        if document is None:
            return Said(Fate.PENDING)
        if holds_quota(document):
            return admission_of(document)
        return waiting_of(document) or Said(Fate.PENDING)

    def _differ(
        self, key: str, kind: Kind, says: Said, did: Said, *, is_omission: bool = False
    ) -> None:
        self._count += 1
        document = self._workloads.get(key)
        uid = self._uids.get(key) or (uid_of(document) if document is not None else "")
        self._found.append(Disagreement(key, uid, kind, says, did, is_omission))


def _is_verdict(said: Said) -> bool:
    if said.reason == _UNSPECIFIC:
        return bool(_obstacles(said)) and "Pending the preemption" not in said.message
    return said.reason in _VERDICTS


def _says_the_same(says: Said, did: Said) -> bool:
    """Whether two sides give the same reason, and name the same obstacles.

    Which flavors are named depends on where an earlier scan of them stopped, and the reason follows
    from those: where one side names fewer flavors, it may have another reason.
    """
    ours, kueues = _obstacles(says), _obstacles(did)
    if ours < kueues or kueues < ours:
        return bool(ours and kueues)
    is_same = says.reason == did.reason or says.reason in _SAME_REASONS.get(did.reason, ())
    return is_same and (bool(ours) or says.message == did.message) and ours == kueues


def _obstacles(said: Said) -> frozenset[str]:
    """What its message has against each flavor, pod set by pod set.

    Without amounts that follow usage: a message stays as it was when it was looked at.
    """
    found: set[str] = set()
    for part in said.message.split("; "):
        head, colon, rest = part.partition(": ")
        if colon and head.startswith(_NO_FLAVOR):
            found.update(f"{head}: {_without_usage(item)}" for item in rest.split(", "))
    return frozenset(found)


def _without_usage(obstacle: str) -> str:
    return obstacle if _OF_QUOTA_ALONE in obstacle else _AMOUNT.sub("#", obstacle)
