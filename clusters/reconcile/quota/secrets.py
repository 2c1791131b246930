"""Hands the workers' *multikueue* kubeconfigs to the manager's Kueue, as Secrets.

Nothing of a Secret's content reaches the database, a log or an error. The portal may not list
Secrets: it asks for its own by name, when a token changed and now and then.
"""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Collection, Iterator, Sequence

from clusters.documents import labels
from clusters.errors import LeaseLost, NotFound
from clusters.kube import resources as r
from clusters.kube.client import WriteOptions, delete_exactly
from clusters.manifests.names import (
    KUEUE_NAMESPACE,
    Document,
    Key,
    Ownership,
    owner_of,
    secret_name,
)
from clusters.manifests.translate import cluster_owner, secret_document
from clusters.models import Cluster
from clusters.reconcile.context import ShiftContext
from clusters.reconcile.quota.decide import Decision, Step
from clusters.reconcile.quota.record import Result
from clusters.reconcile.quota.wanted import site_for
from clusters.reconcile.runtime.faults import words_of
from clusters.vault import unseal

CHECK_EVERY_S = 60.0


class SecretSync:
    """Secrets of one manager; used by one thread."""

    def __init__(self, context: ShiftContext) -> None:
        self._context = context
        self._settled: dict[str, tuple[str, float]] = {}
        self._removed: set[str] = set()

    def sync(self, known: Collection[Key]) -> list[Result]:
        """Writes what is new, deletes what belongs to workers that are not there any more.

        Args:
            known: Objects that have a row: nothing else of ours can be there to delete.

        Raises:
            LeaseLost: nothing was written after it.
        """
        facts = self._context.cluster
        is_active = facts.state == Cluster.State.ACTIVE and not facts.is_portal_mode
        rows = Cluster.objects.filter(role=Cluster.Role.WORKER).values_list(
            "slug", "state", "multikueue_kubeconfig_sealed"
        )
        results: list[Result] = []
        for slug, state, sealed in rows:
            kept = sealed if is_active and state == Cluster.State.ACTIVE else None
            try:
                if kept:
                    results += self._keep(slug, bytes(kept))
                elif _key(slug) in known:
                    self._remove(slug)
            except LeaseLost:
                raise
            except Exception as error:
                step = Step.UPDATE if kept else Step.DELETE
                results.append(_result(slug, step, self._owner(), error=words_of(error)))
        return results

    def _keep(self, slug: str, sealed: bytes) -> Iterator[Result]:
        digest = hashlib.sha256(sealed).hexdigest()[:16]
        settled, checked_at = self._settled.get(slug, ("", 0.0))
        if settled == digest and time.monotonic() - checked_at < CHECK_EVERY_S:
            return
        self._removed.discard(slug)
        result = self._written(slug, sealed, digest)
        if not result.error and result.decision.step is not Step.REFUSE:
            self._settled[slug] = digest, time.monotonic()
        yield result

    def _written(self, slug: str, sealed: bytes, digest: str) -> Result:
        owner, live = self._owner(), self._live(slug)
        refusal = self._refusal(live)
        if refusal:
            return _result(slug, Step.REFUSE, owner, message=refusal)
        if live is not None and _digest_of(live) == digest:
            return _result(slug, Step.NOTHING, owner)
        encoded = base64.b64encode(unseal(sealed).encode()).decode()
        document = secret_document(slug, encoded, owner=owner)
        document["metadata"]["annotations"][labels.KUBECONFIG_DIGEST] = digest
        self._context.fence()
        self._context.client.apply(r.SECRET, document, options=WriteOptions(force=True))
        return _result(slug, Step.UPDATE, owner, was_written=True)

    def _remove(self, slug: str) -> None:
        if slug in self._removed:
            return
        live = self._live(slug)
        if live is not None and not self._refusal(live):
            self._context.fence()
            delete_exactly(self._context.client, r.SECRET, live)
        self._settled.pop(slug, None)
        self._removed.add(slug)

    def _live(self, slug: str) -> Document | None:
        try:
            return self._context.client.get(r.SECRET, secret_name(slug), namespace=KUEUE_NAMESPACE)
        except NotFound:
            return None

    def _refusal(self, live: Document | None) -> str:
        owner = None if live is None else owner_of(live)
        if live is None or (owner and owner.installation == self._context.cluster.installation):
            return ""
        return "A Secret of this name was here before this portal and does not belong to it."

    def _owner(self) -> Ownership:
        facts = self._context.cluster
        return cluster_owner(facts.slug, site_for(facts))


def _key(slug: str) -> Key:
    return Key("Secret", KUEUE_NAMESPACE, secret_name(slug))


def secret_keys(workers: Sequence[str]) -> set[Key]:
    """Keys of the Secrets that a manager holds."""
    return {_key(worker) for worker in workers}


def _digest_of(live: Document) -> str:
    return str((live["metadata"].get("annotations") or {}).get(labels.KUBECONFIG_DIGEST) or "")


def _result(
    slug: str,
    step: Step,
    owner: Ownership,
    *,
    message: str = "",
    error: str = "",
    was_written: bool = False,
) -> Result:
    """A result whose document is empty: a Secret is never handed on."""
    return Result(Decision(_key(slug), step, {}, owner, message=message), was_written, error)
