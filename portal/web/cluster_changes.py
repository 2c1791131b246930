"""The switches of a cluster: each on a page of its own that says what it touches."""

from __future__ import annotations

from dataclasses import dataclass

from django import forms

from portal.web.forms import PortalForm, ReasonForm, YamlField


class ModeForm(ReasonForm):
    """Who decides on the cluster."""

    mode = forms.ChoiceField(
        label="Who decides",
        choices=[("kueue", "Kueue decides"), ("portal", "The portal decides")],
        widget=forms.RadioSelect,
    )
    field_order = ["mode", "reason"]


class DriftForm(PortalForm):
    """What happens to a hand edit."""

    policy = forms.ChoiceField(
        label="A hand edit of an owned field",
        choices=[
            ("restore", "Put back what the portal wants"),
            ("keep", "Keep the hand edit and show it"),
        ],
        widget=forms.RadioSelect,
    )


class GuardForm(ReasonForm):
    """What may be done about known defects of the Kueue there."""

    guard = forms.ChoiceField(
        label="Known defects of Kueue",
        choices=[
            ("off", "Off: nothing is looked at"),
            ("tell", "Tell: shown here and on the job's page, nothing is done"),
            ("cure", "Prevent and cure: the portal writes where Kueue would be stuck"),
        ],
        widget=forms.RadioSelect,
    )
    field_order = ["guard", "reason"]


class LocalJobsForm(PortalForm):
    """Whether jobs may come to a worker past the manager."""

    allowed = forms.BooleanField(label="Allow jobs on this worker directly", required=False)


class ConfigurationForm(PortalForm):
    """The Kueue Configuration that holds there."""

    configuration = YamlField(
        label="Kueue Configuration", help_text="YAML. Empty: what the cluster tells itself."
    )


class KubeconfigForm(PortalForm):
    """A new kubeconfig for the same cluster."""

    kubeconfig = forms.CharField(
        label="New kubeconfig",
        strip=False,
        max_length=200_000,
        widget=forms.Textarea(attrs={"class": "code", "spellcheck": "false"}),
        help_text="Stored encrypted, never shown again. The old one is forgotten.",
    )
    context = forms.CharField(label="Context", required=False, max_length=200)


class BlockForm(ReasonForm):
    """After a restored backup: which side is right."""

    keep = forms.ChoiceField(
        label="What is right",
        choices=[
            ("cluster", "The cluster: writing to it stops, budgets can be entered again in peace"),
            (
                "portal",
                "The portal: what it has is applied over the cluster's, the rest is drained",
            ),
        ],
        widget=forms.RadioSelect,
    )
    field_order = ["keep", "reason"]


class RemoveForm(ReasonForm):
    """The slug typed again, so that nobody removes the wrong one."""

    slug = forms.CharField(label="Type the cluster's slug", max_length=40)
    abandon = forms.BooleanField(
        label="It is lost for good: forget it at once and clean nothing up there", required=False
    )
    field_order = ["slug", "reason", "abandon"]


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that an admin does to a cluster on a page of its own."""

    title: str
    text: str
    form: type[PortalForm]
    button: str
    said: str


CHANGES = {
    "stop-writing": Change(
        "Stop all writing",
        "Nothing is written to this cluster until writing is on again; the page shows what would "
        "be written. Running jobs go on. It can be switched back at any time.",
        ReasonForm,
        "Stop writing",
        "Writing is off.",
    ),
    "start-writing": Change(
        "Write again",
        "What is wanted is applied within seconds.",
        ReasonForm,
        "Write again",
        "Writing is on.",
    ),
    "mode": Change(
        "Change who decides",
        "Only with writing stopped; the matrix of modes and the proof of a live Kueue are checked "
        "again.",
        ModeForm,
        "Change mode",
        "The mode is changed.",
    ),
    "drift": Change(
        "Hand edits",
        "The portal notices a hand edit of an owned field within seconds.",
        DriftForm,
        "Save",
        "Saved.",
    ),
    "guard": Change(
        "Guard",
        "Three defects of Kueue 0.19.2: a returning worker's old copy kills the running job, an "
        "evicted job keeps its quota for ever, a rejected job that is active again is not queued. "
        "Cures delete old copies on workers and write into workloads and jobs on this manager; "
        "they stop no running job. They need rights of their own: apply the generated ones again.",
        GuardForm,
        "Save",
        "Saved.",
    ),
    "kubeconfig": Change(
        "Renew the kubeconfig",
        "The new one has to open the same server; it is checked before the old one is forgotten.",
        KubeconfigForm,
        "Renew",
        "The kubeconfig is renewed.",
    ),
    "token": Change(
        "Renew the multikueue token",
        "The manager gets a new token for this worker; the old one ends by itself.",
        PortalForm,
        "Renew token",
        "A new token is in place.",
    ),
    "local-jobs": Change(
        "Jobs past the manager",
        "Jobs that are submitted on the worker itself are shown as outside of the split.",
        LocalJobsForm,
        "Save",
        "Saved.",
    ),
    "configuration": Change(
        "Kueue Configuration",
        "What stands in no API: fair sharing, transformations and the like. Forecasts and the "
        "portal's own decisions follow it.",
        ConfigurationForm,
        "Save",
        "Saved.",
    ),
    "block": Change(
        "Decide after a restored backup",
        "The cluster carries newer generations than the portal's database. Nothing is written "
        "until you say which side is right. What you do not choose is lost.",
        BlockForm,
        "Decide",
        "Decided; the sync goes on.",
    ),
    "deregister": Change(
        "De-register this cluster",
        "Cannot be undone. The cluster is drained, the portal's objects, copies and secrets there "
        "are removed, its stored credentials are forgotten. Namespaces, jobs and use stay.",
        RemoveForm,
        "De-register",
        "The cluster is being drained and removed.",
    ),
}
