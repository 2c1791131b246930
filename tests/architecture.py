"""What docs/architecture.md says of the code by itself: the picture of rooms, figures by folder.

``python -m tests.architecture [FOLDER]`` prints the figures of a tree: lines of Python, modules,
their median, public functions, and duplicates (pairs of places with ten equal lines or more).
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("portal", "budgets", "clusters")
# Rooms that are shown as rooms of their own inside a room.
OPENED = ("clusters.reconcile", "clusters.kueue")
BEGIN, END = "<!-- picture of the code: begin -->\n", "<!-- picture of the code: end -->\n"
DUPLICATE_LINES = 10
# Who has everything in it, and is read by nobody.
APART = ("apps", "admin", "migrations", "management", "settings", "urls", "wsgi", "tasks", "celery")


def with_generated_parts(text: str) -> str:
    """The page with the picture of today's code."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{picture()}{END}{after}"


def picture() -> str:
    """Rooms and who reads whom, as Mermaid: what follows from other arrows is left out."""
    arrows = _reduced(_arrows())
    rooms = sorted(set(arrows).union(*arrows.values()))
    lines = ["```mermaid", "graph TD"]
    for package in PACKAGES:
        lines.append(f"  subgraph {package}")
        lines += [f"    {_id(room)}[{_label(room)}]" for room in rooms if _is_in(room, package)]
        lines.append("  end")
    lines += [f"  {_id(a)} --> {_id(b)}" for a in sorted(arrows) for b in sorted(arrows[a])]
    return "\n".join([*lines, "```", ""])


def _arrows() -> dict[str, set[str]]:
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    found: dict[str, set[str]] = defaultdict(set)
    for module in graph.modules:
        room = _room(module)
        for imported in graph.find_modules_directly_imported_by(module):
            other = _room(imported)
            if room and other and room != other:
                found[room].add(other)
    return found


def _room(module: str) -> str:
    """The room that a module is in; empty for what stands apart."""
    parts = module.split(".")
    depth = 3 if ".".join(parts[:2]) in OPENED else 2
    room = ".".join(parts[:depth])
    is_apart = len(parts) < 2 or parts[1] in APART or room in OPENED
    return "" if is_apart else room


def _reduced(arrows: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Without arrows that a longer way says as well; rooms of a circle keep theirs."""
    reached = {room: _reach(room, arrows) for room in arrows}

    def is_needed(room: str, other: str) -> bool:
        between = arrows[room] - {other}
        return not any(
            other in reached.get(way, ()) and way not in reached.get(other, ()) for way in between
        )

    return {room: {o for o in found if is_needed(room, o)} for room, found in arrows.items()}


def _reach(room: str, arrows: Mapping[str, set[str]]) -> set[str]:
    seen, open_ = set(), list(arrows.get(room, ()))
    while open_:
        other = open_.pop()
        if other not in seen:
            seen.add(other)
            open_ += arrows.get(other, ())
    return seen


def _is_in(room: str, package: str) -> bool:
    return room.partition(".")[0] == package


def _id(room: str) -> str:
    return room.replace(".", "_")


def _label(room: str) -> str:
    return room.partition(".")[2].replace(".", "/")


def figures(tree: Path) -> Iterator[tuple[str, int, int, int, int, int]]:
    """Folder, lines, modules, median lines, public functions, duplicates; the last row is all."""
    files = {path: path.read_text() for path in _sources(tree)}
    folders: dict[str, list[Path]] = defaultdict(list)
    for path in files:
        parts = path.relative_to(tree).parts
        folders["/".join(parts[: min(2, len(parts) - 1)])].append(path)
    for folder, paths in [*sorted(folders.items()), ("all", list(files))]:
        lengths = [files[path].count("\n") for path in paths]
        yield (
            folder,
            sum(lengths),
            len(paths),
            int(statistics.median(lengths)),
            sum(_public_functions(files[path]) for path in paths),
            duplicates(files[path] for path in paths),
        )


def _sources(tree: Path) -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((tree / package).rglob("*.py"))


def _public_functions(source: str) -> int:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = (node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds))
    return sum(not node.name.startswith("_") for node in found)


def duplicates(sources: Iterable[str]) -> int:
    """Pairs of places that have ten lines in common; blank lines, comments and imports aside."""
    places: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for number, source in enumerate(sources):
        lines = [line.strip() for line in source.splitlines()]
        told = [x for x in lines if len(x) > 3 and not x.startswith(("#", "from ", "import "))]
        for at in range(len(told) - DUPLICATE_LINES + 1):
            places[tuple(told[at : at + DUPLICATE_LINES])].append((number, at))
    pairs = {pair for found in places.values() for pair in combinations(found, 2)}
    # A run of eleven equal lines is one pair, not two.
    return sum(((a, i - 1), (b, j - 1)) not in pairs for (a, i), (b, j) in pairs)


def main() -> None:
    print("| folder | lines | modules | median | public functions | duplicates |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for row in figures(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT):
        print(
            "| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else cell for cell in row) + " |"
        )


if __name__ == "__main__":
    main()
