"""Reads a Dockerfile of the few instructions that the product's own has.

What it does not know it refuses, so that a new instruction is carried out or noticed.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field

_FROM = re.compile(r"(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE)
_COPY_FROM = re.compile(r"--from=(\S+)\s+")


class DockerfileError(ValueError):
    """An instruction that nobody here can carry out."""


@dataclass(frozen=True, slots=True)
class Run:
    """A line for the shell."""

    command: str


@dataclass(frozen=True, slots=True)
class Copy:
    """Files of the context, or of another stage, into a place."""

    sources: tuple[str, ...]
    target: str
    stage: str = ""


@dataclass(frozen=True, slots=True)
class Env:
    """Variables, for what comes after and for the container."""

    values: dict[str, str]


@dataclass(frozen=True, slots=True)
class Workdir:
    """Where what comes after begins."""

    path: str


Step = Run | Copy | Env | Workdir


@dataclass(slots=True)
class Stage:
    """One root: what it begins with, what is done to it, and how a container of it is started."""

    base: str
    name: str = ""
    steps: list[Step] = field(default_factory=list)
    user: str = "0"
    command: tuple[str, ...] = ()
    port: int = 0


def read(text: str) -> list[Stage]:
    """The stages in their order; the last one is the image.

    Raises:
        DockerfileError: an instruction is not known here, or comes before the first FROM.
    """
    stages: list[Stage] = []
    for line in _lines(text):
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if word == "FROM":
            found = _FROM.fullmatch(rest)
            if found is None:
                raise DockerfileError(f"not read: {line}")
            stages.append(Stage(found[1], found[2] or ""))
        elif not stages:
            raise DockerfileError(f"before FROM: {line}")
        else:
            _add(stages[-1], word, rest)
    return stages


def _lines(text: str) -> list[str]:
    """Instructions, each in one line; a comment within a continued one is none of it."""
    kept = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(kept))
    return [line.strip() for line in joined.splitlines() if line.strip()]


def _add(stage: Stage, word: str, rest: str) -> None:
    match word:
        case "RUN":
            stage.steps.append(Run(rest))
        case "COPY":
            taken = _COPY_FROM.match(rest)
            *sources, target = shlex.split(rest[taken.end() :] if taken else rest)
            stage.steps.append(Copy(tuple(sources), target, taken[1] if taken else ""))
        case "ENV":
            pairs = (part.partition("=") for part in shlex.split(rest))
            stage.steps.append(Env({name: value for name, _, value in pairs}))
        case "WORKDIR":
            stage.steps.append(Workdir(rest))
        case "USER":
            stage.user = rest
        case "EXPOSE":
            stage.port = int(rest)
        case "CMD":
            stage.command = tuple(json.loads(rest))
        case _:
            raise DockerfileError(f"{word} is not known here: write what it does in tests/image")
