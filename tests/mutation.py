"""Mutation testing of the core: ``python -m tests.mutation [--seed N] [--sample N] [--only GLOB]``.

mutmut makes every mutant of the pure core in a scratch copy of the tree; a sample drawn by the seed
is tried against the unit tests of the core and of what calls it, each mutant against those that
reach its function. Tests that need a database or a server, replays of recorded decisions and slow
suites do not take part. Survivors are listed in ``artifacts/mutation.json`` with their changes;
exit status 1 below ``LEAST_KILLED``. ``--folder`` keeps the copy: to try one mutant again, run
``MUTANT_UNDER_TEST=NAME python -m pytest TESTS`` in its folder ``mutants``.

A survivor whose change means nothing is written into ``tests/mutation_equivalent.json`` with the
reason, by its change; it is not counted.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MUTMUT = Path(sys.executable).with_name("mutmut")
EQUIVALENT = Path(__file__).with_name("mutation_equivalent.json")
REPORT = ROOT / "artifacts" / "mutation.json"
LEAST_KILLED = 0.85
SAMPLE = 1_000
CORE = (
    "clusters/kueue/*",
    "budgets/plan/*",
    "budgets/intervals/*",
    "budgets/metering/*",
    "budgets/charging/*",
)
UNIT_TESTS = (
    "tests/budgets",
    "tests/documents",
    "tests/explained",
    "tests/exports",
    "tests/kueue",
    "tests/ledger",
    "tests/manifests",
    "tests/reconcile",
    "tests/spending",
    "tests/stories",
)
WITHOUT = (
    "tests/explained/test_arithmetic.py",
    "tests/kueue/test_conformance.py",
    "tests/kueue/test_replay_admission.py",
)
MARKS = (
    "accidents", "browser", "company", "controlplane", "database", "embedded", "office", "postgres",
    "redis", "slow",
)  # fmt: skip
KILLED, LATE = frozenset({1, 3}), frozenset({36, 24, -24, 152, 255})
# Drawn names go to mutmut in lots, so that what is done survives whatever ends a lot.
LOT = 100
# Makes the mutants and learns which tests reach what, and tries none.
NOTHING = "no.such.mutant"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, default=SAMPLE)
    parser.add_argument("--only", default="*", help="of the mutants' names")
    parser.add_argument("--children", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="an empty or new one for the scratch copy")
    given = parser.parse_args()
    with _folder(given.folder) as folder:
        _copy_tree(folder)
        _mutmut(folder, NOTHING, children=given.children)
        everything = sorted(fnmatch.filter(_results(folder), given.only))
        drawn = random.Random(given.seed).sample(everything, min(given.sample, len(everything)))
        for start in range(0, len(drawn), LOT):
            _mutmut(folder, *drawn[start : start + LOT], children=given.children)
        found = {name: code for name, code in _results(folder).items() if name in set(drawn)}
        report = _report(folder, found, total=len(everything), seed=given.seed)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n")
    for package, (killed, tried) in sorted(report["by_package"].items()):
        print(f"{package:40} {killed:5} of {tried:5} killed, {killed / tried:.0%}")
    print(
        f"{report['killed']} of {report['tried']} killed: {report['share']:.1%}; seed {given.seed}"
    )
    return 0 if report["share"] >= LEAST_KILLED else 1


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    """The one that is kept, or one that goes afterwards."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
    else:
        with tempfile.TemporaryDirectory(prefix="portal-mutants-") as name:
            yield Path(name)


def _copy_tree(folder: Path) -> None:
    """The files that git knows, as they are now, with mutmut's settings."""
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in names.stdout.splitlines():
        source, target = ROOT / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    ignored = [word for path in WITHOUT for word in ("--ignore", path)]
    marks = " and ".join(f"not {mark}" for mark in MARKS)
    settings = {
        "source_paths": ["budgets", "clusters", "portal"],
        "only_mutate": list(CORE),
        "also_copy": ["manage.py", "templates", "static", "docs"],
        "pytest_add_cli_args": [
            "-p",
            "no:randomly",
            "-p",
            "no:cacheprovider",
            "-m",
            marks,
            *ignored,
        ],
        "pytest_add_cli_args_test_selection": list(UNIT_TESTS),
    }
    with (folder / "pyproject.toml").open("a") as file:
        file.write("\n[tool.mutmut]\n")
        file.writelines(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())


def _mutmut(folder: Path, *names: str, children: int) -> None:
    """Raises SystemExit: a name that was asked for was not tried."""
    command = [str(MUTMUT), "run", "--max-children", str(children), *names]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if NOTHING not in names and None in {_results(folder)[name] for name in names}:
        sys.exit(f"mutmut failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def _results(folder: Path) -> dict[str, int | None]:
    """Mutant → exit status of its tests; None where it was not tried."""
    found: dict[str, int | None] = {}
    for path in (folder / "mutants").rglob("*.py.meta"):
        found.update(json.loads(path.read_text())["exit_code_by_key"])
    return found


def _report(
    folder: Path, found: Mapping[str, int | None], *, total: int, seed: int
) -> dict[str, object]:
    known = json.loads(EQUIVALENT.read_text()) if EQUIVALENT.exists() else {}
    survivors = {
        name: _change(folder, name) for name, code in found.items() if code not in KILLED | LATE
    }
    equivalent = {name for name, change in survivors.items() if _reason(known, name, change)}
    counted = [name for name in found if name not in equivalent]
    by_package = _by_package(counted, survivors)
    killed = len(counted) - sum(name in survivors for name in counted)
    return {
        "seed": seed,
        "mutants": total,
        "tried": len(counted),
        "killed": killed,
        "share": killed / max(1, len(counted)),
        "equivalent": sorted(equivalent),
        "codes": dict(Counter(str(code) for code in found.values())),
        "by_package": by_package,
        "survivors": {n: change for n, change in sorted(survivors.items()) if n not in equivalent},
    }


def _by_package(names: Iterable[str], survivors: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    tally: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name in names:
        package = ".".join(name.split(".")[:3])
        tally[package][0] += name not in survivors
        tally[package][1] += 1
    return {package: (killed, tried) for package, (killed, tried) in tally.items()}


def _change(folder: Path, name: str) -> str:
    """What the mutant changes, as the lines of its diff."""
    shown = subprocess.run(
        [str(MUTMUT), "show", name], cwd=folder, capture_output=True, text=True, check=False
    )
    lines = shown.stdout.splitlines()
    return "\n".join(x for x in lines if x[:1] in "+-" and x[:3] not in {"+++", "---"})


def _reason(known: Mapping[str, Mapping[str, str]], name: str, change: str) -> str:
    """Why a survivor of this function means nothing; empty when it has to be killed."""
    function = name.partition("__mutmut_")[0]
    return known.get(function, {}).get(change, "")


if __name__ == "__main__":
    sys.exit(main())
