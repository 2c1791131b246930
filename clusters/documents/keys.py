"""What an object is called, whose it is, and which state of it a document shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Document: TypeAlias = Mapping[str, Any]
_VERSION_DIGITS: Final = 20


def key_of(document: Document) -> str:
    """``namespace/name``, or the name of a cluster-scoped object."""
    metadata = document["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def identity_of(document: Document) -> dict[str, Any]:
    """What of its metadata tells an object, and a state of it, from all others."""
    metadata = document["metadata"]
    names = ("namespace", "name", "uid", "resourceVersion")
    return {name: metadata[name] for name in names if name in metadata}


def place_of(document: Document) -> tuple[str, str]:
    """Its namespace, empty for a cluster-scoped object, and its name."""
    metadata = document["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def uid_of(document: Document) -> str:
    """Its UID; empty where it has none yet."""
    return str(document["metadata"].get("uid") or "")


def version_of(document: Document) -> int:
    """Its resourceVersion; 0 where it has none."""
    return version_number(document["metadata"].get("resourceVersion", ""))


def version_number(text: str) -> int:
    """A resourceVersion as what is compared; 0 for none.

    Whole numbers that grow, on every API server that the portal supports.
    """
    return int(text) if len(text) <= _VERSION_DIGITS and text.isdecimal() else 0


def labels_of(document: Document) -> Mapping[str, str]:
    """Its labels; empty where it has none."""
    return document["metadata"].get("labels") or {}


def annotations_of(document: Document) -> Mapping[str, str]:
    """Its annotations; empty where it has none."""
    return document["metadata"].get("annotations") or {}


def without_writers(document: dict[str, Any]) -> dict[str, Any]:
    """The same document without ``managedFields``, who wrote what: often four fifths of it."""
    document["metadata"].pop("managedFields", None)
    return document


def whole(document: dict[str, Any]) -> dict[str, Any]:
    """The same document with all that it has."""
    return document


def status_of(document: Document) -> Mapping[str, Any]:
    """Its status; empty where nobody wrote one yet."""
    return document.get("status") or {}


def owner_uids(document: Document) -> list[str]:
    """UIDs of its owners."""
    owners = document["metadata"].get("ownerReferences") or ()
    return [str(owner["uid"]) for owner in owners if owner.get("uid")]


def controller_of(document: Document) -> Mapping[str, Any]:
    """The one owner that controls it, as its reference says; empty where none does."""
    owners = document["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), {})


def bound(document: Document) -> dict[str, Any]:
    """What binds a merge patch to the very state of an object that it was built on."""
    return {"metadata": {"resourceVersion": document["metadata"]["resourceVersion"]}}
