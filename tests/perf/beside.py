"""``python -m tests.perf.beside TREE [NAME …]``: benches of an older tree and of this one, in turn.

Each tree is a checkout with an environment of its own (``make .venv/.installed``). Every section of
:mod:`tests.perf.bench` that both have is run ``--runs`` times in each, one tree after the other. A
figure is *slower* when its median is more than five percent above the older one's and above all of
the older runs. The table, both commits, machine and date go to ``tests/perf/beside.json``, section
by section; rows of other sections stay as long as the commits are the same. Exit status 1 when a
figure is slower or a run failed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.perf.bench import NAMES, machine

ROOT: Final = Path(__file__).resolve().parents[2]
REPORT: Final = Path(__file__).with_name("beside.json")
TOLERANCE: Final = 1.05
Figures = dict[tuple[str, str], list[float]]
Runs = Mapping[tuple[str, str], Sequence[float]]
"""Section and figure → the medians of the runs, in the figure's unit; less is better."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.perf.beside", description=__doc__)
    parser.add_argument("tree", type=Path, help="checkout of the older commit")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scale", default="1.0", help="share of the workloads of admission")
    given = parser.parse_args()
    trees = (given.tree.resolve(), ROOT)
    is_worse = False
    for name in given.names or NAMES:
        load = os.getloadavg()[0]
        found: tuple[Figures, Figures] = defaultdict(list), defaultdict(list)
        for _ in range(given.runs):
            for tree, figures in zip(trees, found, strict=True):
                for figure, value in _run(tree, name, given.scale):
                    figures[figure].append(value)
        rows = list(compared(*found))
        _keep(trees, rows, load, given.scale)
        for row in rows:
            print(f"{row['figure']:44} {row['before']} → {row['after']}  {row['verdict']}")
        is_worse |= any(row["verdict"] == "slower" for row in rows)
    return is_worse


def _keep(trees: Sequence[Path], rows: Sequence[dict[str, Any]], load: float, scale: str) -> None:
    """Put these rows into the report, in the place of those that it has of the same figures."""
    before, after = map(_commit, trees)
    kept = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    if (kept.get("before"), kept.get("after")) != (before, after):
        kept = {"before": before, "after": after, "machine": machine(), "rows": []}
    new = {row["figure"] for row in rows}
    told = {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "load_average_before": round(load, 2),
        "scale_of_admission": float(scale),
    }
    kept["rows"] = [row for row in kept["rows"] if row["figure"] not in new]
    kept["rows"] += [{**row, **told} for row in rows]
    REPORT.write_text(json.dumps(kept, indent=1) + "\n")


def compared(before: Runs, after: Runs) -> Iterator[dict[str, Any]]:
    """A row for each figure that both trees have, in the older one's order."""
    for key in before:
        if key not in after:
            continue
        old, new = statistics.median(before[key]), statistics.median(after[key])
        is_slower = new > old * TOLERANCE and new > max(before[key])
        yield {
            "figure": ".".join(key),
            "before": list(before[key]),
            "after": list(after[key]),
            "ratio": round(new / old, 3) if old else None,
            "verdict": "slower" if is_slower else "as before",
        }


def _run(tree: Path, name: str, scale: str) -> Iterator[tuple[tuple[str, str], float]]:
    """One run of a section in a tree.

    Raises:
        SystemExit: The bench did not end with figures; a broken limit is no reason.
            What earlier sections found is in the report.
    """
    stored = tree / "tests" / "perf" / "figures.json"
    kept = stored.read_bytes()
    stored.write_text("{}")
    try:
        command = [tree / ".venv/bin/python", "-m", "tests.perf.bench", name, "--scale", scale]
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
        sections = json.loads(stored.read_text()).get("sections")
    finally:
        stored.write_bytes(kept)
    if not sections:
        sys.exit(f"{name} in {tree} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    print(done.stdout, end="", flush=True)
    for section, figures in sections.items():
        for figure, told in figures.items():
            yield (section, figure), told["p50"]


def _commit(tree: Path) -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(
        command, cwd=tree, capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
