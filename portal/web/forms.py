"""Forms: they read what was typed; what is right is decided by the services.

A form never checks a rule of its own beyond shape: faults of a service come back beside the
field that they name, all at once.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time
from typing import Any, Final, TypeVar

import yaml
from django import forms
from django.utils import timezone

from budgets import selectors
from budgets.errors import Fault, Rejected, StaleVersion
from budgets.models import Account, Flavor, User, Workspace
from budgets.plan import MOST_GPUS
from budgets.texts import UnreadableText, read_yaml
from portal.bounds import REASON, check_year

Result = TypeVar("Result")


MANY = 100
"""More names than this are typed, not picked: the page stays small and quick."""


class TypedName(forms.TextInput):
    """A typed name in the place of a long list; shows a list of one as its word."""

    def format_value(self, value: Any) -> str | None:
        words = ", ".join(value) if isinstance(value, list) else value
        return str(words) if words else None


def offer_names(field: Any, names: Mapping[str, str]) -> None:
    """Let one be chosen, key → name: from a list, or its key is typed where there are many.

    The list is made when it is shown or a key is looked up in it, not for every page.
    """
    field.choices = lambda: [("", "all"), *names.items()]
    if len(names) > MANY:
        field.widget = TypedName(attrs={"placeholder": "all", "autocomplete": "off"})


Offer = Mapping[str, tuple[str, Any]]
"""Key → what is read in a list, and the thing that is meant."""
NOTHING: Final[Mapping[str, Offer]] = {}


class OfferedField(forms.ChoiceField):
    """One of the things that :class:`PortalForm` is given as ``offered``; it comes to that thing.

    Args:
        empty_label: What is read where nothing need be chosen.
        is_typed_of_many: Whether a key is typed where the list would be long.
    """

    def __init__(
        self, *, empty_label: str = "", is_typed_of_many: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**{"required": not empty_label, **kwargs})
        self.nothing = [("", empty_label)] if empty_label else []
        self.is_typed_of_many = is_typed_of_many
        self.things: Offer = {}

    def offer(self, things: Offer) -> None:
        """Let one of these be chosen."""
        words = {key: name for key, (name, _) in things.items()}
        if self.is_typed_of_many:
            offer_names(self, words)
        self.things = things
        self.choices = lambda: [*self.nothing, *words.items()]

    def clean(self, value: Any) -> Any:
        key = super().clean(value)
        return self.things[key][1] if key else None

    def prepare_value(self, value: Any) -> Any:
        return next((key for key, (_, thing) in self.things.items() if thing == value), value)


class PortalForm(forms.Form):
    """Base of every form: faults of a service become errors beside their fields."""

    # Fault path → field of this form, where they differ.
    fault_fields: dict[str, str] = {}
    stale: StaleVersion | None = None

    def __init__(self, *args: Any, offered: Mapping[str, Offer] = NOTHING, **kwargs: Any) -> None:
        kwargs.setdefault("label_suffix", "")
        super().__init__(*args, **kwargs)
        for name, things in offered.items():
            self.part(name).offer(things)

    def part(self, name: str) -> Any:
        """One field; its class decides which of queryset, choices and widget it has."""
        return self.fields[name]

    def take(self, faults: Iterable[Fault]) -> None:
        """Show faults beside the fields that they name; what names none stands on top."""
        if not hasattr(self, "cleaned_data"):
            self.full_clean()
        for fault in faults:
            name = self.field_of(fault.field)
            self.add_error(name if name in self.fields else None, fault.message)

    def field_of(self, path: str) -> str:
        """Name of the field that a fault's path speaks of."""
        return self.fault_fields.get(path, path)

    @property
    def status(self) -> int:
        """Of the page that shows this form: 422 with faults in it."""
        return 422 if self.errors else 200

    def carry_out(self, action: Callable[[], Result]) -> Result | None:
        """Do it; None when it was rejected, and then the faults are in the form."""
        try:
            return action()
        except Rejected as rejected:
            self.take(rejected.faults)
            return None


class WorkspaceFilter(PortalForm):
    """What of a list is asked for, one workspace or all; it is in the address."""

    workspace = forms.ChoiceField(required=False)

    def __init__(self, *args: Any, names: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        offer_names(self.part("workspace"), names)


CHOSEN: Mapping[Any, tuple[Callable[[User], Any], str]] = {
    Account: (selectors.visible_accounts, "slug"),
    Flavor: (selectors.visible_flavors, "slug"),
    Workspace: (selectors.visible_workspaces, "namespace"),
}
"""Model → the rows that somebody may choose, and their names."""


class ChoosingForm(PortalForm):
    """A form in which its reader chooses accounts, flavors or workspaces."""

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            if isinstance(field, forms.ModelChoiceField) and field.queryset is not None:
                field.queryset = CHOSEN[field.queryset.model][0](user)


def choice_of(model: Any, label: str, **options: Any) -> forms.ModelChoiceField[Any]:
    """One row of a model, by its name; :class:`ChoosingForm` says which there are."""
    rows = model._default_manager.none()
    return forms.ModelChoiceField(rows, to_field_name=CHOSEN[model][1], label=label, **options)


def radio(label: str, *, help_text: str = "", **words: str) -> forms.ChoiceField:
    """One of a few values, each with its words beside it."""
    return forms.ChoiceField(
        label=label, choices=list(words.items()), widget=forms.RadioSelect, help_text=help_text
    )


class PasswordField(forms.CharField):
    """A password, as it was typed; ``knows`` says to browsers whether it is one that exists."""

    def __init__(self, *, knows: str = "new-password", **kwargs: Any) -> None:
        widget = forms.PasswordInput(attrs={"autocomplete": knows})
        super().__init__(widget=widget, strip=False, **kwargs)


class GpuField(forms.IntegerField):
    """Whole GPUs."""

    widget = forms.NumberInput(attrs={"inputmode": "numeric", "autocomplete": "off"})
    default_error_messages = {
        "invalid": "Type a number of whole GPUs.",
        "required": "Type a number of GPUs. 0 is allowed.",
    }

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"min_value": 0, "max_value": MOST_GPUS, **kwargs})


class DayField(forms.DateField):
    """A day; browsers offer a calendar."""

    widget = forms.DateInput(attrs={"type": "date"})
    default_validators = [check_year]


def midnight(day: date) -> datetime:
    """When a day of the reader's clock begins, in UTC."""
    local = datetime.combine(day, time.min, tzinfo=timezone.get_current_timezone())
    return local.astimezone(UTC)


class TimeField(forms.DateTimeField):
    """A time in the reader's zone; the service gets it in UTC, in whole seconds."""

    widget = forms.DateTimeInput(format="%Y-%m-%dT%H:%M", attrs={"type": "datetime-local"})
    default_validators = [check_year]

    def __init__(self, *, required: bool = False, **kwargs: Any) -> None:
        super().__init__(required=required, **kwargs)

    def clean(self, value: Any) -> datetime | None:
        moment: datetime | None = super().clean(value)
        return moment and moment.astimezone(UTC).replace(microsecond=0)


class NameForm(PortalForm):
    """What people read."""

    name = forms.CharField(label="Name", max_length=120)


class ReasonField(forms.CharField):
    """Why."""

    widget = forms.Textarea(attrs={"rows": 2})


class ReasonForm(PortalForm):
    """Why; asked wherever somebody will want to know later."""

    reason = ReasonField(help_text="Kept in the audit log.", **REASON)


class CurrencyField(forms.CharField):
    """Three letters, in capitals."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=3, **kwargs)

    def to_python(self, value: Any) -> str:
        return str(super().to_python(value)).upper()


def read_cells(text: str, read: Callable[[list[str]], Result]) -> list[Result]:
    """Rows of cells that are divided by commas, one on each line.

    Args:
        text: As it was typed; empty lines are left out.
        read: Makes something of a row; raises ValueError with what is wrong after "Line N".

    Raises:
        forms.ValidationError: With the faults of all lines, the first 20.
    """
    found, wrong, number = [], [], 0
    rows = csv.reader(text.splitlines())
    while True:
        number += 1
        try:
            if cells := next(rows):
                found.append(read([cell.strip() for cell in cells]))
        except StopIteration:
            break
        except csv.Error:
            wrong.append(f"Line {number} has a cell that is too long to be read. Shorten it.")
        except ValueError as error:
            wrong.append(f"Line {number}{error}")
    if wrong:
        raise forms.ValidationError(wrong[:20])
    return found


class Versioned(PortalForm):
    """A change of something that somebody else may have saved in between.

    Attributes:
        stale: Who did, once it was tried; what was typed stays, for the newer version.
    """

    version = forms.IntegerField(widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        """What services ask for: the version under its name there."""
        typed: dict[str, Any] = super().clean() or self.cleaned_data
        if "version" in typed:
            typed["expected_version"] = typed.pop("version")
        return typed

    def carry_out(self, action: Callable[[], Result]) -> Result | None:
        try:
            return super().carry_out(action)
        except StaleVersion as error:
            self.stale = error
            self.data = self.data.copy()  # type: ignore[attr-defined]  # a QueryDict
            self.data["version"] = str(error.current_version)  # type: ignore[index]
            return None

    @property
    def status(self) -> int:
        return 409 if self.stale else super().status


class VersionedForm(Versioned, ReasonForm):
    """Such a change for a reason alone."""


class YamlField(forms.CharField):
    """One YAML document → mapping; None when nothing was typed."""

    widget = forms.Textarea(attrs={"class": "code", "rows": 6, "spellcheck": "false"})

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, max_length=200_000, **kwargs)

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        if not text:
            return None
        try:
            document = read_yaml(text)
        except UnreadableText as error:
            raise forms.ValidationError(str(error)) from error
        if not isinstance(document, dict):
            raise forms.ValidationError("This is not a mapping of names to values.")
        return document

    def prepare_value(self, value: Any) -> Any:
        return yaml.safe_dump(value, sort_keys=False) if isinstance(value, dict) else value


class SecretArea(forms.Textarea):
    """For a secret of several lines: it is never sent back, so a refused one is pasted again."""

    def __init__(self) -> None:
        super().__init__({"class": "code", "spellcheck": "false", "autocomplete": "off"})

    def format_value(self, value: Any) -> str | None:
        return None


class LinesField(forms.CharField):
    """Something on each line."""

    rows = 2

    def __init__(self, **kwargs: Any) -> None:
        widget = forms.Textarea(attrs={"rows": self.rows, "class": "mono"})
        super().__init__(widget=widget, required=False, **kwargs)

    def lines(self, value: Any) -> list[str]:
        """Lines with something on them, without the blanks around."""
        text = super().to_python(value) or ""
        return [line.strip() for line in text.splitlines() if line.strip()]


class NamesField(LinesField):
    """A name on each line → list."""

    def to_python(self, value: Any) -> Any:
        return self.lines(value)

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, (list, tuple)) else value


class PairsField(LinesField):
    """``key=value`` on each line → dict."""

    rows = 3

    def to_python(self, value: Any) -> Any:
        pairs: dict[str, str] = {}
        for line in self.lines(value):
            key, found, content = line.partition("=")
            if not found or not key.strip():
                raise forms.ValidationError(f"{line!r} is not of the form key=value.")
            pairs[key.strip()] = content.strip()
        return pairs

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return "\n".join(f"{key}={content}" for key, content in value.items())
        return value


class TaintsField(LinesField):
    """``key=value:Effect`` on each line → Kubernetes taints, or tolerations of them."""

    def __init__(self, *, as_tolerations: bool = False, **kwargs: Any) -> None:
        self.as_tolerations = as_tolerations
        super().__init__(**kwargs)

    def to_python(self, value: Any) -> Any:
        return [self._read(line) for line in self.lines(value)]

    def _read(self, line: str) -> dict[str, str]:
        head, found, effect = line.rpartition(":")
        key, has_value, content = head.partition("=")
        if not found or not key or effect not in {"NoSchedule", "PreferNoSchedule", "NoExecute"}:
            raise forms.ValidationError(
                f"{line!r} is not of the form key=value:Effect with the effect NoSchedule, "
                "PreferNoSchedule or NoExecute."
            )
        taint = {"key": key, "effect": effect} | ({"value": content} if has_value else {})
        if self.as_tolerations:
            taint["operator"] = "Equal" if has_value else "Exists"
        return taint

    def prepare_value(self, value: Any) -> Any:
        if isinstance(value, list):
            return "\n".join(
                row["key"] + (f"={row['value']}" if "value" in row else "") + f":{row['effect']}"
                for row in value
            )
        return value
