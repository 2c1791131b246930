"""What a role knows of one cluster: documents by kind and key, and indexes over them.

One thread owns a cache. Watch events, answers to own writes and readings after a failure meet here
in any order; here alone it is judged which of two states of an object is the newer one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from clusters.documents.keys import Document, key_of, uid_of, version_of, without_writers
from clusters.documents.packed import Packed, packed
from clusters.kube.resources import Resource

_GONE_LIMIT: Final = 10_000
Place = tuple[Resource, str]
"""Kind and key."""


@dataclass(frozen=True, slots=True)
class Index:
    """Finds objects by something that their documents say.

    Attributes:
        name: Of the index.
        resources: Kinds that it is over.
        values: Under which values an object is found; it may raise, then the object is not taken.
    """

    name: str
    resources: frozenset[Resource]
    values: Callable[[Document], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Effect:
    """An object as an own write, or a reading after it, showed it.

    Attributes:
        cluster: Where, by the name that its watches tell.
        key: ``namespace/name``, or the name of a cluster-scoped object.
        document: None when it is gone.
    """

    cluster: str
    resource: Resource
    key: str
    document: dict[str, Any] | None


class Cache:
    """Documents, never copied and not to be changed by anybody.

    Args:
        indexes: What objects are found by besides their keys.
        has_writers: Whether it is kept who wrote which field of them.
    """

    def __init__(self, indexes: Iterable[Index] = (), *, has_writers: bool = False) -> None:
        self._has_writers = has_writers
        self._documents: dict[Resource, dict[str, dict[str, Any]]] = defaultdict(dict)
        self._indexes: dict[Resource, list[Index]] = defaultdict(list)
        self._found: dict[str, dict[str, dict[Place, None]]] = {}
        self._values: dict[Place, list[tuple[str, ...]]] = {}
        self._gone: dict[str, int] = {}
        for index in indexes:
            self._found[index.name] = {}
            for resource in index.resources:
                self._indexes[resource].append(index)

    def of(self, resource: Resource) -> Mapping[str, dict[str, Any]]:
        """All documents of a kind by key, as they come and go. O(1)."""
        return self._documents[resource]

    def get(self, resource: Resource, key: str) -> dict[str, Any] | None:
        """One document; None when there is none."""
        return self._documents[resource].get(key)

    def has(self, resource: Resource, document: Document) -> bool:
        """Whether this state of an object is the one that is known."""
        known = self._documents[resource].get(key_of(document))
        if known is None or uid_of(known) != uid_of(document):
            return False
        return 0 < version_of(document) == version_of(known)

    def put(self, resource: Resource, document: dict[str, Any]) -> bool:
        """Take in a document; False when that state of the object, or a newer one, is known.

        Of the same state the later copy is kept: that of a watch, which keeps it, too.

        Raises:
            Exception: what an index raised; the cache is as it was.
        """
        key, uid, version = key_of(document), uid_of(document), version_of(document)
        documents = self._documents[resource]
        known = documents.get(key)
        if known is not None and uid_of(known) == uid and version <= version_of(known):
            is_light = not isinstance(known, Packed)  # to compare others, they would be opened
            if is_light and known is not document and known == document:
                documents[key] = document
            return False
        if version <= self._gone.get(uid, -1):
            return False
        indexes = self._indexes.get(resource)
        if indexes:
            self._file((resource, key), indexes, document)
        documents[key] = packed(document if self._has_writers else without_writers(document))
        return True

    def drop(self, resource: Resource, document: Document) -> bool:
        """Forget an object; False when it is not known, or another one has taken its name."""
        key, uid = key_of(document), uid_of(document)
        documents = self._documents[resource]
        known = documents.get(key)
        if known is None or uid_of(known) != uid:
            return False
        indexes = self._indexes.get(resource)
        if indexes:
            self._unfile((resource, key), indexes)
        del documents[key]
        # An answer to a write that was sent before may still come in.
        self._gone[uid] = max(version_of(document), version_of(known))
        if len(self._gone) > _GONE_LIMIT:
            for old in list(self._gone)[: _GONE_LIMIT // 2]:
                del self._gone[old]
        return True

    def places(self, index: str, value: str) -> Collection[Place]:
        """What is found under a value of an index, in the order of coming there. O(1)."""
        return self._found[index].get(value, {}).keys()

    def found(self, index: str, value: str) -> list[dict[str, Any]]:
        """The documents that are found under a value of an index."""
        return [self._documents[resource][key] for resource, key in self.places(index, value)]

    def newest(self, index: str, value: str) -> str:
        """Key of what came last under a value of an index; empty when there is nothing. O(1)."""
        found = self._found[index].get(value)
        return next(reversed(found))[1] if found else ""

    def values(self, index: str) -> Collection[str]:
        """Values of an index under which anything is found, as they come and go. O(1)."""
        return self._found[index].keys()

    def _file(self, place: Place, indexes: list[Index], document: Document) -> None:
        # All of them first: a document that cannot be read leaves nothing half done.
        now = [tuple(index.values(document)) for index in indexes]
        before = self._values.get(place)
        if now == before:
            return
        if before is not None:
            self._unfile(place, indexes)
        for index, values in zip(indexes, now, strict=True):
            found = self._found[index.name]
            for value in values:
                there = found.get(value)
                if there is None:
                    found[value] = {place: None}
                else:
                    there[place] = None
        self._values[place] = now

    def _unfile(self, place: Place, indexes: list[Index]) -> None:
        for index, values in zip(indexes, self._values.pop(place), strict=True):
            found = self._found[index.name]
            for value in dict.fromkeys(values):
                there = found[value]
                del there[place]
                if not there:
                    del found[value]
