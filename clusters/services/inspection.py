"""Looks into a pasted kubeconfig before it is stored, and says what may be shown of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from budgets.errors import Fault, Rejected, reject_any
from budgets.models import User
from budgets.services.guards import require_admin
from clusters.credentials import Credential, credential_in
from clusters.errors import FieldFault, KubeconfigRejected
from clusters.kube import kubeconfig as kc
from clusters.kube.addresses import address_faults
from clusters.vault import SealBroken, seal, unseal

HELD_S = 900
SUFFIXES = (".kubeconfig", ".yaml", ".yml", ".conf")


@dataclass(frozen=True, slots=True)
class ContextRow:
    """One context to choose; nothing of it opens a door."""

    name: str
    server: str
    user_kind: str
    ca_fingerprint: str
    faults: tuple[Fault, ...]
    is_current: bool = False


@dataclass(frozen=True, slots=True)
class KubeconfigReport:
    """All contexts, and what is wrong with the text as a whole."""

    contexts: tuple[ContextRow, ...]
    faults: tuple[Fault, ...]
    current: str = ""


def inspect_kubeconfig(text: str) -> KubeconfigReport:
    """List the contexts of a kubeconfig, and what speaks against each. Nothing is stored."""
    try:
        config = kc.parse(text)
    except KubeconfigRejected as error:
        return KubeconfigReport((), tuple(faults_of(error)))
    rows = tuple(_row(text, name, is_current=name == config.current) for name in config.names)
    return KubeconfigReport(rows, (), config.current)


def pasted_credential(text: str, *, context: str) -> Credential:
    """The credential of one context of a kubeconfig, with nothing that is not needed.

    Raises:
        Rejected: every fault of the text or of the context.
    """
    try:
        found = credential_in(kc.choose(text, context=context))
    except KubeconfigRejected as error:
        raise Rejected(faults_of(error)) from None
    reject_any(map(_fault, address_faults(found.facts.server)))
    return found


def kubeconfig_from_file(actor: User | None, *, name: str) -> str:
    """Read a kubeconfig that lies in the server's folder for local use.

    Raises:
        NotAllowed: for everybody but an admin.
        Rejected: no such folder is set, or no such file is in it.
    """
    require_admin(actor)
    folder = settings.PORTAL_KUBECONFIG_FOLDER
    if not folder:
        message = "PORTAL_KUBECONFIG_FOLDER is not set; paste it."
        raise Rejected.because("kubeconfig", "no_folder", message)
    root = Path(folder).resolve()
    path = (root / name).resolve()
    if path.parent != root or path.suffix not in SUFFIXES or not path.is_file():
        message = f"There is no kubeconfig of that name in {folder}."
        raise Rejected.because("kubeconfig", "no_file", message)
    return path.read_text()[: kc.SIZE_LIMIT + 1]


def hold_kubeconfig(actor: User | None, *, text: str) -> str:
    """A kubeconfig as a sealed word that a form carries from one step to the next.

    Raises:
        NotAllowed: for everybody but an admin.
    """
    require_admin(actor)
    return seal(text).decode()


def held_kubeconfig(actor: User | None, *, held: str) -> str:
    """The kubeconfig that a form has carried; it keeps for a quarter of an hour.

    Raises:
        NotAllowed: for everybody but an admin.
        Rejected: it is too old, or was changed.
    """
    require_admin(actor)
    try:
        return unseal(held.encode(), max_age_s=HELD_S)
    except SealBroken:
        message = "The kubeconfig of the first step can no longer be read; give it again."
        raise Rejected.because("kubeconfig", "not_held", message) from None


def faults_of(error: KubeconfigRejected) -> list[Fault]:
    """A refused kubeconfig in the words that forms and API use."""
    fields: Iterable[FieldFault] = error.fields or (FieldFault("", error.message, error.reason),)
    return [_fault(fault) for fault in fields]


def _fault(fault: FieldFault) -> Fault:
    words = f"{fault.field}: {fault.message}" if fault.field else fault.message
    return Fault("kubeconfig", _code(fault.reason), words)


def _row(text: str, name: str, *, is_current: bool) -> ContextRow:
    try:
        facts = kc.facts_of(text, context=name)
    except KubeconfigRejected as error:
        return ContextRow(name, "", "", "", tuple(faults_of(error)), is_current)
    faults = tuple(_fault(each) for each in address_faults(facts.server))
    return ContextRow(name, facts.server, facts.user_kind, facts.ca_fingerprint, faults, is_current)


def _code(reason: str) -> str:
    """CamelCase to snake_case."""
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in reason).lstrip("_")
