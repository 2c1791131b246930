"""Answers that say no, shaped as Kubernetes API servers shape them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cause:
    """One field's fault: its path, the reason word and the sentence (Status.details.causes)."""

    field: str
    reason: str
    message: str

    @property
    def document(self) -> Document:
        return {"reason": self.reason, "message": self.message, "field": self.field}


def invalid(field: str, value: Any, message: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {message}")


def required(field: str, message: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", f"Required value: {message}".removesuffix(": "))


def unsupported(field: str, value: Any, allowed: Sequence[Any]) -> Cause:
    listed = ", ".join(_shown(entry) for entry in allowed)
    message = f"Unsupported value: {_shown(value)}: supported values: {listed}"
    return Cause(field, "FieldValueNotSupported", message)


def duplicate(field: str, value: Any) -> Cause:
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {_shown(value)}")


def too_many(field: str, count: int, limit: int) -> Cause:
    message = f"Too many: {count}: must have at most {limit} items"
    return Cause(field, "FieldValueTooMany", message)


def too_long(field: str, limit: int) -> Cause:
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def forbidden_field(field: str, message: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {message}")


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Problem(Exception):
    """A request that is answered with a failure Status."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Document | None = None,
        causes: Sequence[Cause] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details or {})
        if causes:
            self.details["causes"] = [cause.document for cause in causes]

    @property
    def status(self) -> Document:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }


@dataclass(frozen=True, slots=True)
class Subject:
    """What an answer is about: PLURAL.GROUP and a name."""

    group: str
    plural: str
    kind: str
    name: str

    @property
    def group_resource(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def group_kind(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def details(self) -> Document:
        group = {"group": self.group} if self.group else {}
        return {"name": self.name, **group, "kind": self.plural}


def not_found(subject: Subject) -> Problem:
    message = f'{subject.group_resource} "{subject.name}" not found'
    return Problem(404, "NotFound", message, details=subject.details)


def already_exists(subject: Subject) -> Problem:
    message = f'{subject.group_resource} "{subject.name}" already exists'
    return Problem(409, "AlreadyExists", message, details=subject.details)


def conflict(subject: Subject, why: str) -> Problem:
    message = f'Operation cannot be fulfilled on {subject.group_resource} "{subject.name}": {why}'
    return Problem(409, "Conflict", message, details=subject.details)


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def invalid_object(subject: Subject, causes: Sequence[Cause]) -> Problem:
    lines = [f"{cause.field}: {cause.message}" for cause in causes]
    text = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    message = f'{subject.group_kind} "{subject.name}" is invalid: {text}'
    details = subject.details | {"kind": subject.kind}
    return Problem(422, "Invalid", message, details=details, causes=causes)


def denied_by_webhook(webhook: str, causes: Sequence[Cause]) -> Problem:
    lines = [f"{cause.field}: {cause.message}" for cause in causes]
    text = lines[0] if len(lines) == 1 else f"[{', '.join(lines)}]"
    return Problem(403, "Forbidden", f'admission webhook "{webhook}" denied the request: {text}')


def bad_request(message: str) -> Problem:
    return Problem(400, "BadRequest", message)


def expired(version: int, oldest: int) -> Problem:
    return Problem(410, "Expired", f"too old resource version: {version} ({oldest})")
