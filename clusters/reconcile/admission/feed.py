"""Lets the image and the engine know what a cluster has. Owned by the deciding thread."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from clusters.kube.resources import Resource
from clusters.kueue.cycle.engine import Engine
from clusters.reconcile.admission.image import ENGINE_KINDS, Image, look_of, object_key

log = logging.getLogger(__name__)

Document = dict[str, Any]

_KINDS: Final = frozenset(resource.kind for resource in ENGINE_KINDS)
_RANK: Final = {resource: rank for rank, resource in enumerate(ENGINE_KINDS)}


class Feed:
    """What a watch told, or the answer to an own write, goes through here.

    Args:
        image: Gets every document.
        engine: Gets those of the kinds that it understands.
        cluster: Its name, for logs.
        now: Clock.
    """

    def __init__(
        self, image: Image, engine: Engine, *, cluster: str, now: Callable[[], datetime]
    ) -> None:
        self._image, self._engine = image, engine
        self._cluster, self._now = cluster, now
        self._looks: dict[str, tuple[object, ...]] = {}

    def take(self, resource: Resource, document: Document, *, is_gone: bool) -> bool:
        """Take in an object as it is now; False when that was known, or newer is."""
        image = self._image
        is_news = image.drop(resource, document) if is_gone else image.put(resource, document)
        if is_news and resource.kind in _KINDS:
            self._tell_engine(resource, document, is_gone=is_gone)
        return is_news

    def looks_new(self, resource: Resource, document: Document, *, is_gone: bool) -> bool:
        """Whether more than a status that nobody here reads has changed."""
        key = f"{resource.kind}:{object_key(document)}"
        look = look_of(resource, document, is_gone=is_gone)
        before = self._looks.get(key)
        self._looks[key] = look
        return before != look

    def _tell_engine(self, resource: Resource, document: Document, *, is_gone: bool) -> None:
        now = self._now()
        try:
            if is_gone:
                self._engine.delete(resource.kind, key=object_key(document), now=now)
            else:
                self._engine.upsert(document, kind=resource.kind, now=now)
        except (KeyError, ValueError) as error:
            # One object that no API server of this version would have let in harms nobody else.
            log.error(
                "object_unreadable cluster=%s kind=%s key=%s error=%s",
                self._cluster, resource.kind, object_key(document), error,
            )  # fmt: skip


def feeding_rank(resource: Resource | None) -> int:
    """Quota before queues before workloads before all else: much less is worked out twice."""
    return _RANK.get(resource, len(_RANK)) if resource is not None else len(_RANK)
