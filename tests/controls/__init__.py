"""Negative controls: each guard of docs/security.md is taken out once, and a test has to notice.

``guards/*.toml`` says what to take out and who notices; ``python -m tests.controls`` tries it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = Path(__file__).with_name("guards")
SECURITY = ROOT / "docs" / "security.md"
_LINK = re.compile(r'\]\(\.\./(tests/[\w/.]+\.py)(?: "(test_\w+)")?\)')


@dataclass(frozen=True, slots=True)
class Guard:
    """One guard, and who notices that it is gone.

    Attributes:
        tests: As pytest names them, ``tests/web/test_doors.py::test_a_body``; each has to fail.
        file: Where the guard stands.
        find: Its text, which stands there once.
        replace: What stands there without it.
        server: ``postgres`` or ``redis``, where the tests need one; ``bare postgres`` where the
            guard stands in a migration, which the other one has had already.
        also: The other places where the same guard stands, with ``file``, ``find`` and ``replace``.
    """

    tests: Sequence[str]
    file: str
    find: str
    replace: str
    server: str = ""
    also: Sequence[Mapping[str, str]] = ()

    def places(self) -> Iterator[tuple[str, str, str]]:
        """File, text and what stands there without it, of each place."""
        yield self.file, self.find, self.replace
        yield from ((at["file"], at["find"], at["replace"]) for at in self.also)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Tests that no row takes a guard out for, and why."""

    tests: Sequence[str]
    reason: str


def guards(of: str = "*") -> Iterator[Guard]:
    """Every row, in the order of the files; ``of`` one of them alone."""
    for document in _documents(of):
        yield from (Guard(**row) for row in document.get("guard", ()))


def elsewhere() -> Iterator[Elsewhere]:
    """Every exception, in the order of the files."""
    for document in _documents():
        yield from (Elsewhere(**row) for row in document.get("elsewhere", ()))


def promised() -> frozenset[str]:
    """The tests that docs/security.md names; a whole file where it names no function."""
    found = _LINK.findall(SECURITY.read_text())
    return frozenset(f"{path}::{name}" if name else path for path, name in found)


def _documents(of: str = "*") -> Iterator[dict[str, list[dict[str, object]]]]:
    for path in sorted(FOLDER.glob(f"{of}.toml")):
        yield tomllib.loads(path.read_text())
