"""From the database: what one cluster shall carry now, and whether that may have changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from django.db.models import BigIntegerField, F, Model, Subquery, Sum, Value

from budgets import selectors
from budgets.models import Account, Budget, Flavor, Pool, Topology, Workspace
from budgets.models.reading import Written, ask, written
from budgets.plan import Promises
from clusters.manifests.names import Document, Key, key_of
from clusters.manifests.translate import Site
from clusters.models import Cluster, MaintenanceWindow
from clusters.reconcile.context import ClusterFacts
from clusters.selectors.carried import standing_of
from clusters.selectors.places import active_workers, homes_of, site_of

Fingerprint = tuple[Any, ...]
_A_ROW: Final = 2**32
"""What a row counts for beside its generation: more than those of all rows add up to."""
SUBJECTS: dict[str, tuple[type[Model], str]] = {
    "account": (Account, "slug"),
    "budget": (Budget, "workspace__namespace"),
    "cluster": (Cluster, "slug"),
    "flavor": (Flavor, "slug"),
    "pool": (Pool, "slug"),
    "topology": (Topology, "slug"),
}
"""What objects stand for: the first word of a subject, its rows, and the column of its name."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a cluster shall carry.

    Attributes:
        documents: In the order of application.
        generations: Subject → generation of everything that the database knows, also archived.
        workers: Slugs of the workers that the manager dispatches to; empty on a worker.
    """

    documents: Mapping[Key, Document]
    generations: Mapping[str, int]
    workers: tuple[str, ...]


def fingerprint(cluster_id: int) -> Fingerprint:
    """Changes whenever something changes that documents are made of. One query.

    Generations only rise and rows are archived, not deleted, so how many rows there are and what
    their generations add up to tells.
    """
    return next(iter(ask(_marks(cluster_id))), ())


@lru_cache(maxsize=64)
def _marks(cluster_id: int) -> Written:
    """The query of a fingerprint: it is asked twice a second."""
    parts = {
        f"of_{model.__name__.lower()}": _total(model)
        for model in (Budget, Account, Pool, Flavor, Topology, Cluster, MaintenanceWindow)
    }
    switches = ("state", "writes_enabled", "drift_policy", "blocked_reason")
    rows = Cluster.objects.filter(pk=cluster_id).order_by().annotate(**parts)
    return written(rows.values_list(*switches, *parts))


def _total(model: type[Model]) -> Subquery:
    """Both in one number, for each subquery takes the database longer than adding it up."""
    rows = model._default_manager.order_by().annotate(one=Value(1)).values("one")
    of_all = Sum(F("generation") + Value(_A_ROW), output_field=BigIntegerField())
    return Subquery(
        rows.annotate(found=of_all).values("found"), output_field=BigIntegerField(null=True)
    )


class Promised:
    """What is in force, as one shift has read it: anew only where a generation has risen.

    Not safe for several threads.
    """

    def __init__(self) -> None:
        self._marks: set[tuple[str, int]] = set()
        self._promises: Promises | None = None

    def newest(self, generations: Mapping[str, int]) -> Promises:
        """Everything in force. Where nothing rose, no query; else those of what rose.

        Args:
            generations: As :func:`known_generations` has just read them.
        """
        marks = {mark for mark in generations.items() if not mark[0].startswith("cluster:")}
        risen = {subject for subject, _ in marks ^ self._marks}
        if self._promises is None or not all(map(_is_of_an_account, risen)):
            self._promises = selectors.promises_in_force()
        elif risen:
            accounts = self._accounts_of(risen)
            newer = selectors.promises_in_force(accounts=accounts)
            self._promises = self._promises.renewed(newer, accounts)
        self._marks = marks
        return self._promises

    def _accounts_of(self, subjects: Collection[str]) -> frozenset[str]:
        """Slugs of the accounts that are named, and of those that budgets are, or were, in."""
        names = [subject.partition(":") for subject in subjects]
        budgets = {name for kind, _, name in names if kind == "budget"}
        known = Workspace.objects.filter(namespace__in=budgets)
        before = self._promises.workspaces if self._promises is not None else ()
        return frozenset(
            {name for kind, _, name in names if kind == "account"}
            | set(known.values_list("account__slug", flat=True))
            | {row.account for row in before if row.namespace in budgets}
        )


def _is_of_an_account(subject: str) -> bool:
    return subject.startswith(("account:", "budget:"))


def wanted_on(facts: ClusterFacts, *, promised: Promised, there: Collection[str]) -> Wanted:
    """Everything that a cluster shall carry: nothing while it is drained for its removal.

    Args:
        facts: Of its row.
        promised: What the shift has read so far.
        there: Namespaces that have a queue of ours on it.
    """
    known = known_generations(facts)
    if facts.state != Cluster.State.ACTIVE:
        return Wanted({}, known, ())
    workers = active_workers() if facts.is_manager else ()
    homes = homes_of(Cluster.objects.active().only("slug", "role", "own_queue"))
    standing = standing_of(facts, workers=workers, homes=homes)
    documents = standing.documents(promised.newest(known), there=there)
    return Wanted({key_of(document): document for document in documents}, known, workers)


def site_for(facts: ClusterFacts) -> Site:
    """How documents of a cluster are marked."""
    return site_of(is_manager=facts.is_manager, generation=facts.generation)


def known_generations(facts: ClusterFacts) -> dict[str, int]:
    """Subject → generation of every row, archived ones included. Five queries."""
    known = {f"cluster:{facts.slug}": facts.generation}
    for kind, (model, column) in SUBJECTS.items():
        if model is not Cluster:
            rows = model._default_manager.values_list(column, "generation")
            known |= {f"{kind}:{name}": generation for name, generation in rows}
    return known
