"""Kueue's feature gates, all of them, and what the portal does where one has another value.

The table is ``feature_gates.csv``: name, stage and default as in Kueue; *here* says whether the
engine decides as either value says (followed), decides the same with both (no effect), or knows the
default alone (refused); *changes* says what comes with the gate on, of a refused one with the value
that is not the default.

Source: Kueue pkg/features/kube_features.go, v0.19.2; k8s.io/component-base/featuregate for
``AllAlpha`` and ``AllBeta``.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, Final


class Stance(StrEnum):
    """What a gate means here."""

    FOLLOWED = "followed"
    NO_EFFECT = "no effect"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Gate:
    """One row of the table.

    Attributes:
        stage: Alpha, Beta, GA or Deprecated.
        is_on: By default.
        changes: What comes with it, a clause.
    """

    name: str
    stage: str
    is_on: bool
    stance: Stance
    changes: str


def _read() -> dict[str, Gate]:
    with Path(__file__).with_name("feature_gates.csv").open(newline="") as file:
        return {
            row["gate"]: Gate(
                row["gate"],
                row["stage"],
                row["default"] == "on",
                Stance(row["here"]),
                row["changes"],
            )
            for row in csv.DictReader(file)
        }


GATES: Final[Mapping[str, Gate]] = _read()
_STAGES: Final = {"Alpha": "AllAlpha", "Beta": "AllBeta"}


def in_force(section: Mapping[str, Any]) -> dict[str, bool]:
    """The value of every gate under the ``featureGates`` of a Configuration.

    A gate by its own name wins over the word for its stage.
    """
    return dict(_in_force(frozenset((name, bool(value)) for name, value in section.items())))


@lru_cache(maxsize=64)
def _in_force(section: frozenset[tuple[str, bool]]) -> Mapping[str, bool]:
    said = dict(section)
    return {
        name: said.get(name, said.get(_STAGES.get(gate.stage, ""), gate.is_on))
        for name, gate in GATES.items()
    }


def refused(section: Mapping[str, Any]) -> list[str]:
    """What the portal would decide otherwise than Kueue under these gates, sentence by sentence.

    Names that Kueue does not know either are among them: it would not start.
    """
    known = {*GATES, *_STAGES.values()}
    found = [f"{name} is no gate of Kueue 0.19" for name in sorted(map(str, {*section} - known))]
    for name, value in in_force(section).items():
        gate = GATES[name]
        if gate.stance is Stance.REFUSED and value != gate.is_on:
            found.append(f"{name} is {'on' if value else 'off'}: {gate.changes}")
    return found
