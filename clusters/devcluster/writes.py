"""Creating, changing and deleting objects: the pipeline that every write of a cluster goes through.

Order, as on a real API server: identity and preconditions, which part the address may change,
defaults, schema, expressions, webhooks, ownership, generation, commit. One lock is held from
reading the live object to the commit, so optimistic concurrency is exact.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from clusters.devcluster import core_rules, kueue_rules, ownership, patches, problems, schema
from clusters.devcluster.identity import (
    KEPT_METADATA,
    Address,
    Intent,
    check_identity,
    out_of_reach,
    typed_document,
    within_reach,
)
from clusters.devcluster.ownership import FieldManager
from clusters.devcluster.problems import Cause, Document, Failure
from clusters.devcluster.registry import NAMESPACES, ServedKind
from clusters.devcluster.store import ObjectStore

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = ("application/apply-patch+yaml", "application/apply-patch+json")

__all__ = ["APPLY", "JSON", "MERGE", "STRATEGIC", "Address", "Intent", "Writes"]


class Writes:
    """Write requests against one store. `webhooks` tells whether Kueue's webhooks answer."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        now: Callable[[], datetime] | None = None,
        webhooks: bool = True,
    ) -> None:
        self._store = store
        self._now = now or (lambda: datetime.now(UTC))
        self._webhooks = webhooks

    def timestamp(self) -> str:
        """Now, in whole seconds, as Kubernetes writes it."""
        return self._now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def create(self, target: Address, body: Any, intent: Intent) -> Document:
        """Creates an object.

        Raises:
            Failure: 404 for a missing namespace, 409 when it exists, 422 or 403 when refused.
        """
        document = typed_document(target, body)
        kind = target.kind
        with self._store.lock:
            self._check_namespace(target)
            metadata = self._fresh_metadata(target, document["metadata"])
            document = document | {"metadata": metadata}
            if self._store.get(kind.key, target.namespace, metadata["name"]):
                raise problems.already_exists(kind, metadata["name"])
            new = self._begun(kind, document, sent=document)
            writer = self._writer(kind, intent, ownership.UPDATE, "")
            entries = ownership.after_update({}, new, kind, writer, base=[])
            return self._commit(kind, new, entries, dry_run=intent.dry_run)

    def update(self, target: Address, body: Any, intent: Intent) -> Document:
        """Replaces an object, or its status.

        Raises:
            Failure: 404, 409 when its resourceVersion or uid is not the live one, 422 or 403.
        """
        document = typed_document(target, body)
        with self._store.lock:
            live = self.live(target)
            kind, version = target.kind, document["metadata"].get("resourceVersion")
            if not version and (kind.is_custom or kind.kind == "Lease"):
                path = "metadata.resourceVersion"
                cause = problems.invalid(path, 0, "must be specified for an update")
                raise problems.invalid_object(kind, target.name, [cause])
            return self._change(target, live, document, intent)

    def patch(self, target: Address, body: Any, content_type: str, intent: Intent) -> Document:
        """Changes an object, or its status, by a merge patch, a JSON patch or an apply.

        Raises:
            Failure: as `update`; 415 for another type of patch.
        """
        if content_type in APPLY:
            return self._apply(target, body, intent)
        if content_type not in (MERGE, JSON, STRATEGIC):
            raise Failure(415, "UnsupportedMediaType", f"not a patch type: {content_type}")
        with self._store.lock:
            live = self.live(target)
            if content_type == JSON:
                document = patches.json_patch(live, body)
            elif isinstance(body, dict):
                document = patches.merge_patch(live, body)
            else:
                raise problems.bad_request("a merge patch is an object")
            return self._change(target, live, document, intent)

    def delete(self, target: Address, options: Any, *, dry_run: bool) -> Document:
        """Deletes an object; with finalizers it stays, marked, until they are gone.

        Returns:
            A success Status, or the marked object.

        Raises:
            Failure: 404, or 409 when a precondition does not hold.
        """
        options = options if isinstance(options, dict) else {}
        dry_run = dry_run or bool(options.get("dryRun"))
        with self._store.lock:
            live = self.live(target)
            preconditions = options.get("preconditions") or {}
            check_identity(target, live, preconditions, is_deletion=True)
            metadata = dict(live["metadata"])
            finalizers = list(metadata.get("finalizers") or [])
            policy = options.get("propagationPolicy")
            extra = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(str(policy))
            if extra and extra not in finalizers:
                finalizers.append(extra)
            if not finalizers and not _holds_content(target.kind, live):
                if not dry_run:
                    self._store.remove(target.kind.key, target.namespace, target.name)
                return _deleted(target, metadata["uid"])
            if "deletionTimestamp" in metadata:
                return live
            metadata |= {"deletionTimestamp": self.timestamp(), "deletionGracePeriodSeconds": 0}
            if finalizers:
                metadata["finalizers"] = finalizers
            if target.kind.counts_generation:
                metadata["generation"] = metadata.get("generation", 1) + 1
            marked = live | {"metadata": metadata}
            if target.kind is NAMESPACES:
                marked["status"] = (live.get("status") or {}) | {"phase": "Terminating"}
            return marked if dry_run else self._store.put(target.kind.key, marked)

    def live(self, target: Address) -> Document:
        """The addressed object.

        Raises:
            Failure: 404.
        """
        live = self._store.get(target.kind.key, target.namespace, target.name)
        if live is None:
            raise problems.not_found(target.kind, target.name)
        return live

    def _apply(self, target: Address, body: Any, intent: Intent) -> Document:
        document = typed_document(target, body)
        kind = target.kind
        metadata = document["metadata"]
        if metadata.get("managedFields"):
            raise problems.bad_request("metadata.managedFields must be nil")
        if kind.is_custom:
            unknown = sorted(schema.unknown_fields(document, kind.schema))
            if unknown:
                place = f"{target.namespace}/{target.name}; {kind.api_version}, Kind={kind.kind}"
                text = f"failed to create typed patch object ({place}): {unknown[0]}"
                text += ": field not declared in schema"
                raise Failure(500, "InternalError", text)
        with self._store.lock:
            live = self._store.get(kind.key, target.namespace, target.name)
            if live is not None:
                check_identity(target, live, metadata)
                return self._apply_to(target, live, document, intent)
            if target.subresource or metadata.get("uid"):
                raise problems.not_found(kind, target.name)
            return self._apply_anew(target, document, intent)

    def _apply_anew(self, target: Address, document: Document, intent: Intent) -> Document:
        self._check_namespace(target)
        kind, metadata = target.kind, self._fresh_metadata(target, {})
        base = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        writer = self._writer(kind, intent, ownership.APPLY, target.subresource)
        merged, entries = ownership.applied(base, document, kind, writer, force=intent.force)
        merged["metadata"] |= metadata
        new = self._begun(kind, merged, sent=document, keeps_null=kind.is_custom)
        return self._commit(kind, new, entries, dry_run=intent.dry_run)

    def _apply_to(
        self, target: Address, live: Document, document: Document, intent: Intent
    ) -> Document:
        kind = target.kind
        intended = {k: v for k, v in document.items() if k not in out_of_reach(target)}
        intended["metadata"] = {
            key: value
            for key, value in document["metadata"].items()
            if key not in ("resourceVersion", "uid", *KEPT_METADATA)
        }
        if target.subresource:
            intended["metadata"] = {"name": target.name}
        writer = self._writer(kind, intent, ownership.APPLY, target.subresource)
        merged, entries = ownership.applied(live, intended, kind, writer, force=intent.force)
        merged = within_reach(target, live, merged)
        new = self._checked(kind, live, merged, keeps_null=kind.is_custom)
        return self._finish(target, live, new, entries, intent)

    def _change(
        self, target: Address, live: Document, document: Document, intent: Intent
    ) -> Document:
        kind = target.kind
        if not isinstance(document.get("metadata"), dict):
            raise problems.bad_request("metadata is missing")
        check_identity(target, live, document["metadata"])
        new = self._checked(kind, live, within_reach(target, live, document))
        # Managers that the request carries count, so that a field can be handed over by hand.
        base = ownership.entries_of(new if new["metadata"].get("managedFields") else live)
        if document["metadata"].get("managedFields") in ([], [{}]):
            base = []
        writer = self._writer(kind, intent, ownership.UPDATE, target.subresource)
        entries = ownership.after_update(live, new, kind, writer, base=base)
        return self._finish(target, live, new, entries, intent)

    def _begun(
        self, kind: ServedKind, document: Document, *, sent: Document, keeps_null: bool = False
    ) -> Document:
        """A new object as it is kept: with defaults, and the status that it begins with."""
        if kind.has_status and kind.kind != "Node":
            document = {key: value for key, value in document.items() if key != "status"}
        document = core_rules.with_defaults(kind, document)
        causes = core_rules.creation_faults(kind, sent)
        new = self._checked(kind, None, document, causes, keeps_null=keeps_null)
        if kind.counts_generation:
            new["metadata"]["generation"] = 1
        return new

    def _finish(
        self,
        target: Address,
        live: Document,
        new: Document,
        entries: list[FieldManager],
        intent: Intent,
    ) -> Document:
        kind, metadata = target.kind, new["metadata"]
        if kind.counts_generation and _intent_of(kind, live) != _intent_of(kind, new):
            metadata["generation"] = metadata.get("generation", 0) + 1
        holds = metadata.get("finalizers") or _holds_content(kind, new)
        if "deletionTimestamp" in metadata and not holds:
            if not intent.dry_run:
                self._store.remove(kind.key, target.namespace, target.name)
            return new
        if _is_same(live, new, entries):
            return live
        return self._commit(kind, new, entries, dry_run=intent.dry_run)

    def _commit(
        self, kind: ServedKind, document: Document, entries: list[FieldManager], *, dry_run: bool
    ) -> Document:
        document["metadata"].pop("managedFields", None)
        if entries:
            document["metadata"]["managedFields"] = [entry.document for entry in entries]
        if dry_run:
            return document
        return self._store.put(kind.key, document)

    def _fresh_metadata(self, target: Address, metadata: Document) -> Document:
        name = target.name or metadata.get("name") or ""
        if not name and metadata.get("generateName"):
            name = f"{metadata['generateName']}{secrets.token_hex(3)[:5]}"
        if metadata.get("resourceVersion"):
            text = "resourceVersion should not be set on objects to be created"
            raise Failure(500, "InternalError", text)
        dropped = (*KEPT_METADATA, "managedFields", "selfLink")
        fresh = {key: value for key, value in metadata.items() if key not in dropped}
        if target.kind.namespaced:
            fresh["namespace"] = target.namespace
        identity = {"uid": str(uuid.uuid4()), "creationTimestamp": self.timestamp()}
        return fresh | {"name": name} | identity

    def _check_namespace(self, target: Address) -> None:
        if not target.kind.namespaced:
            return
        namespace = self._store.get(NAMESPACES.key, "", target.namespace)
        if namespace is None:
            raise problems.not_found(NAMESPACES, target.namespace)
        if "deletionTimestamp" in namespace["metadata"]:
            text = (
                f"unable to create new content in namespace {target.namespace} because it is being"
                " terminated"
            )
            raise Failure(403, "Forbidden", text)

    def _checked(
        self,
        kind: ServedKind,
        old: Document | None,
        sent: Document,
        causes: Iterable[Cause] = (),
        *,
        keeps_null: bool = False,
    ) -> Document:
        """A copy in the kind's normal form; Failure with all that is wrong with it."""
        new: Document = schema.normalised(sent, kind.schema, keeps_null=keeps_null)
        causes = [*causes, *core_rules.metadata_faults(kind, old, new)]
        misshapen = list(schema.faults(new, kind.schema))
        causes += misshapen
        if misshapen and kind.is_custom:
            text = (
                "Invalid value: null: some validation rules were not checked because the object was"
                " invalid; correct the existing errors to complete validation"
            )
            causes.append(Cause("<nil>", "FieldValueInvalid", text))
        if not misshapen:
            causes += core_rules.rule_faults(kind, old, new)
            if rule := kueue_rules.EXPRESSIONS.get(kind.kind):
                causes += rule(old, new)
        if causes:
            raise problems.invalid_object(kind, new["metadata"]["name"], causes)
        webhook = kueue_rules.WEBHOOKS.get(kind.kind) if self._webhooks else None
        if webhook and (denied := list(webhook(old, new))):
            raise problems.denied_by_webhook(f"v{kind.kind.lower()}.kb.io", denied)
        return new

    def _writer(
        self, kind: ServedKind, intent: Intent, operation: str, subresource: str
    ) -> FieldManager:
        return FieldManager(
            intent.manager, operation, subresource, kind.api_version, self.timestamp()
        )


def _holds_content(kind: ServedKind, document: Document) -> bool:
    """Whether it is a namespace that is still to be emptied."""
    return kind is NAMESPACES and bool((document.get("spec") or {}).get("finalizers"))


def _intent_of(kind: ServedKind, document: Document) -> Document:
    """What generation counts: everything but metadata, and status where it is a subresource."""
    left_out = ("metadata", "status") if kind.has_status else ("metadata",)
    return {key: value for key, value in document.items() if key not in left_out}


def _is_same(live: Document, new: Document, entries: list[FieldManager]) -> bool:
    def stripped(document: Document) -> Document:
        metadata = {k: v for k, v in document["metadata"].items() if k != "managedFields"}
        return document | {"metadata": metadata}

    def owners(found: list[FieldManager]) -> set[tuple[Any, ...]]:
        return {(*entry.key, entry.fields) for entry in found}

    return stripped(live) == stripped(new) and owners(ownership.entries_of(live)) == owners(entries)


def _deleted(target: Address, uid: str) -> Document:
    details = problems.details_of(target.kind, target.name) | {"uid": uid}
    return problems.status_document("Success", details=details)
