"""``python -m tests.controls [--only WORD] [--beside N]``: take each guard out and see a test fail.

Each row of ``guards/*.toml`` is tried in a scratch copy of the tree. A test that passes without its
guard, or fails because the code does not run any more, is named; the whole is written to
``artifacts/controls.json``; exit status 1 unless every guard was missed by its tests.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from tests.controls import ROOT, Guard, guards
from tests.servers import postgres_server, redis_server

REPORT = ROOT / "artifacts" / "controls.json"
LONGEST_S = 600
# The code does not run: that says nothing of the guard.
BROKEN = ("NameError", "SyntaxError", "ImportError", "IndentationError", "UnboundLocalError")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.controls", description=__doc__)
    parser.add_argument("--only", default="", help="rows whose tests or file have this word")
    parser.add_argument("--beside", type=int, default=2, help="so many at once")
    given = parser.parse_args()
    rows = [row for row in guards() if given.only in " ".join((row.file, *row.tests))]
    with contextlib.ExitStack() as stack:
        servers = _servers({row.server for row in rows}, stack)
        copies: queue.Queue[Path] = queue.Queue()
        for _ in range(given.beside):
            name = stack.enter_context(tempfile.TemporaryDirectory(prefix="portal-controls-"))
            copies.put(_copy_of_tree(Path(name)))

        def tried(row: Guard) -> tuple[Guard, str]:
            copy = copies.get()
            try:
                verdict = _tried(row, copy, servers.get(row.server, {}))
            finally:
                copies.put(copy)
            print(f"{verdict:14} {row.file}: {' '.join(row.tests)}", flush=True)
            return row, verdict

        with ThreadPoolExecutor(given.beside) as pool:
            found = list(pool.map(tried, rows))
    REPORT.parent.mkdir(exist_ok=True)
    told = [asdict(row) | {"verdict": verdict} for row, verdict in found]
    REPORT.write_text(json.dumps(told, indent=1) + "\n")
    noticed = sum(verdict == "noticed" for _, verdict in found)
    print(f"{noticed} of {len(found)} guards are missed when they are gone")
    return 0 if noticed == len(found) else 1


def _servers(names: set[str], stack: contextlib.ExitStack) -> Mapping[str, Mapping[str, str]]:
    """Environment of tests by the server that they need."""
    found: dict[str, Mapping[str, str]] = {}
    if "postgres" in names:
        url = stack.enter_context(postgres_server())
        template = {"DATABASE_URL": url.replace("/postgres", "/template1")}
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", **template}
        migrate = (sys.executable, "manage.py", "migrate", "-v0")
        subprocess.run(migrate, cwd=ROOT, env=environment, check=True)
        found["postgres"] = {"DATABASE_URL": url}
    if "redis" in names:
        found["redis"] = {"TEST_REDIS_URL": stack.enter_context(redis_server())}
    return found


def _copy_of_tree(folder: Path) -> Path:
    """The files that git knows, as they are now, beside the recorded data."""
    tree = folder / "tree"
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        source, target = ROOT / name, tree / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    if (ROOT.parent / "shared").exists():
        (folder / "shared").symlink_to((ROOT.parent / "shared").resolve())
    return tree


def _tried(row: Guard, tree: Path, environment: Mapping[str, str]) -> str:
    """What the tests say without the guard: ``noticed``, or what is wrong."""
    path = tree / row.file
    text = path.read_text()
    path.write_text(text.replace(row.find, row.replace))
    begun = time.monotonic()
    try:
        for test in row.tests:
            command = (sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test)
            done = subprocess.run(
                command,
                cwd=tree,
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
                timeout=LONGEST_S - (time.monotonic() - begun),
            )
            failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
            if done.returncode == 0:
                return "NOT NOTICED"
            if done.returncode != 1 or not failed:
                return "DID NOT RUN"
            if any(f"- {error}" in line for line in failed for error in BROKEN):
                return "BROKEN"
    except subprocess.TimeoutExpired:
        return "TOOK TOO LONG"
    finally:
        path.write_text(text)
    return "noticed"


if __name__ == "__main__":
    sys.exit(main())
