"""An upgrade while people and tasks go on: ``python -m tests.faults.rolling_upgrade``.

``[--from COMMIT] [--scale F] [--only probe|roll] [--seed N]``. Two parts, eight minutes at most:

1. *The probe*: the real ``migrate`` runs one migration of each allowed kind on a table of a million
   rows, and writers measure how long they wait for a lock (:mod:`tests.faults.lock_probe`).
2. *The roll*: nginx, two webs, two workers for tasks, two for shifts and two beats of an older
   commit, by default release 0.1, over PostgreSQL and Redis, with jobs on embedded clusters and a
   steady load of pages, API, files and closes. The new code migrates, with those scratch
   migrations, while all of the old processes run; then these are stopped in order and replaced one
   after the other, so that old and new ones work side by side. No request may fail for longer than
   2 s, no task may show its effect twice or not at all, and the books have to be an onlooker's.

Both commits are copied to scratch folders. The report goes to ``artifacts/``; exit status 1 when a
rule was broken.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.faults import availability
from tests.faults.limits import OutOfTime, no_longer_than
from tests.faults.load import Load
from tests.faults.lock_probe import Probe, probe, rows_of
from tests.faults.pairs import Pairs
from tests.faults.report import ARTIFACTS, begin, conclude, write_down
from tests.faults.trees import add_scratch_migrations, check_out, other_requirements
from tests.faults.whole_road import INSTALLATION, METERED, Judge, is_open

RELEASE: Final = "3c20a29"
"""The commit of release 0.1."""
ROWS: Final = 1_000_000
MINUTES: Final = 8.0
ORDER: Final = ("shifts", "tasks", "beat", "web")
SET_UP_S: Final = 600.0
"""For the older commit's house: no rule is broken where a busy machine takes long for it."""
ENDED_S: Final = 60.0
"""For what a process has begun: as long as compose.yaml and the chart let it."""
WELL_S: Final = 90.0
PARTS: Final = ("probe", "roll")


@dataclass(slots=True)
class Replaced:
    """One process.

    Attributes:
        at_s: Of the run.
        ended_s: From the signal until its end; None where it had to be killed.
        well_s: From the start of the new one until its probe was content; None for never.
    """

    at_s: float
    name: str
    ended_s: float | None
    well_s: float | None

    def faults(self) -> Iterator[str]:
        if self.ended_s is None:
            yield f"{self.name} of the old release did not end within {ENDED_S:.0f} s"
        if self.well_s is None:
            yield f"{self.name} of the new release is not well"


@dataclass(slots=True)
class Report(availability.Report):
    """What a run did and found.

    Attributes:
        old, new: Commits.
        scale: Of rows and load.
        packages: That the old commit wants in another version than it ran with.
        probe: None where it was left out.
        is_rolled: Whether the second part ran to its end.
        migrated_s: What ``migrate`` took while the old release ran.
        replaced: The processes, in their order.
    """

    old: str = ""
    new: str = ""
    scale: float = 1.0
    packages: list[str] = field(default_factory=list)
    probe: Probe | None = None
    is_rolled: bool = False
    migrated_s: float = 0.0
    migrated_at_s: float = 0.0
    replaced: list[Replaced] = field(default_factory=list)

    def text(self) -> str:
        """For people, as Markdown."""
        lines = [
            f"# Rolling upgrade from {self.old[:7]} to {self.new[:7]}",
            "",
            f"Seed {self.seed}, scale {self.scale:g}; load of the machine {self.load:.1f}. Other "
            f"packages in the old commit: {', '.join(self.packages) or 'none'}.",
        ]
        if self.probe:
            lines += ["", f"## Migrations on {self.probe.rows:,} rows", "", *rows_of(self.probe)]
        if self.is_rolled:
            lines += ["", "## Old and new side by side", "", *self._rolled()]
        lines += ["", f"Broken rules: {len(self.broken)}.", *(f"* {w}" for w in self.broken)]
        return "\n".join(lines)

    def _rolled(self) -> Iterator[str]:
        yield "| at | replaced | ended after | new one well after |"
        yield "| --- | --- | --- | --- |"
        for one in self.replaced:
            ended, well = availability.in_words(one.ended_s), availability.in_words(one.well_s)
            yield f"| {one.at_s:.0f} s | {one.name} | {ended} | {well} |"
        yield ""
        yield (
            f"Migrated at {self.migrated_at_s:.0f} s in {self.migrated_s:.1f} s, of "
            f"{self.seconds:.0f} s in all."
        )
        yield from self.load_lines()

    def store(self) -> Path:
        """Write it down; the path of the JSON."""
        return write_down(self, ARTIFACTS / f"rolling-upgrade-{self.old[:7]}-{self.seed}")


class Rolling(Pairs):
    """The house of an older commit, whose processes are replaced by those of a newer one."""

    def __init__(self, folder: Path, *, old: Path, new: Path) -> None:
        super().__init__(folder, installation=INSTALLATION, lease_s=availability.LEASE_S)
        self._new = new
        self._trees = dict.fromkeys(self.portal, old)
        self._use(old)

    def _use(self, tree: Path) -> None:
        self.root = tree
        self._environment["PYTHONPATH"] = str(tree)

    def settings_of(self, name: str) -> dict[str, str]:
        """What one process is told besides: whose code it runs."""
        given = super().settings_of(name)
        return given | {"PYTHONPATH": str(self._trees[name])} if name in self._trees else given

    def migrate(self) -> float:
        """By the new code, which commands are of from now on; seconds."""
        self._use(self._new)
        begun = time.monotonic()
        self.manage("migrate", "--no-input", "--skip-checks")
        return round(time.monotonic() - begun, 1)

    def replace(self, name: str) -> tuple[float | None, float | None]:
        """Stop one in order and start it from the new code.

        Returns:
            Seconds until it had ended, and until the new one was well; None for never.
        """
        self._down.add(name)
        program = self._programs[name]
        begun = time.monotonic()
        program.terminate()
        ended = _seconds_until(lambda: not program.is_running(), begun, ENDED_S)
        program.kill()
        self._heartbeat(name).unlink(missing_ok=True)
        self._trees[name] = self._new
        begun = time.monotonic()
        with self._lock:
            self._run(name, self.command(name))
        self._down.discard(name)
        return ended, _seconds_until(lambda: self.is_well(name), begun, WELL_S)


def _seconds_until(check: Any, begun: float, seconds: float) -> float | None:
    while time.monotonic() < begun + seconds:
        if check():
            return round(time.monotonic() - begun, 1)
        time.sleep(0.1)
    return None


def run(
    seed: int,
    *,
    old: str = RELEASE,
    scale: float = 1.0,
    parts: tuple[str, ...] = PARTS,
    minutes: float = MINUTES,
) -> Report:
    """Upgrade, and judge what came of it.

    Args:
        seed: Of the jobs.
        old: Commit to upgrade from.
        scale: Of rows and load; 1 is a million rows and five requests a second.
        parts: Of :data:`PARTS`.
        minutes: After which the run stops by itself, and says so as a broken rule.
    """
    print(f"seed {seed}", flush=True)
    report = Report(seed, "embedded", 0.0, scale=scale)
    with tempfile.TemporaryDirectory(prefix="rolling-upgrade-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        trees = folder / "old", folder / "new"
        report.old, report.new = check_out(old, trees[0]), check_out("", trees[1])
        add_scratch_migrations(trees[1])
        report.packages = other_requirements(*trees)
        try:
            with no_longer_than(60 * minutes):
                _judge_scratch_migrations(trees[1], report)
                if "probe" in parts:
                    report.probe = probe(trees[1], _environment(), rows=int(ROWS * scale))
                    report.broken += report.probe.broken
                    print(*rows_of(report.probe), sep="\n", flush=True)
                if "roll" in parts:
                    _roll(report, folder, *trees)
                    report.is_rolled = True
        except (OutOfTime, AssertionError) as error:
            report.broken.append(f"not played to its end: {str(error)[:1000]}")
        report.load = os.getloadavg()[0]
    return report


def _environment() -> dict[str, str]:
    """Of commands for a database that is no house's."""
    ours = ("PORTAL_", "PYTEST_", "DATABASE_", "CELERY_", "DJANGO_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    return kept | {"DJANGO_SETTINGS_MODULE": "portal.settings", "PORTAL_SECRET_KEY": "faults"}


def _judge_scratch_migrations(tree: Path, report: Report) -> None:
    """What the run applies is what the rules pass."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.migration_rules"],
        cwd=tree, env=_environment() | {"PYTHONPATH": str(tree)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        report.broken.append(f"refused: {done.stdout[-600:]}{done.stderr[-600:]}")


def _roll(report: Report, folder: Path, old: Path, new: Path) -> None:
    from tests.faults.effects import Effects
    from tests.faults.ground import embedded_ground
    from tests.faults.observer import Observer
    from tests.faults.schedule import GPUS_PER_WORKER
    from tests.waiting import eventually

    with (
        embedded_ground(is_bare=True) as ground,
        Rolling(folder / "house", old=old, new=new) as house,
        Effects(house) as effects,
    ):
        house.furnish(ground.portal, gpus=GPUS_PER_WORKER)
        effects.prepare()
        house.open()
        eventually(lambda: is_open(ground), seconds=SET_UP_S, why="no queues are set up")
        eventually(lambda: house.query(METERED), seconds=SET_UP_S, why="nothing is metered")
        for process in house.portal:
            eventually(lambda p=process: house.is_well(p), seconds=SET_UP_S, why=process)
        with Observer(ground.admins, lists_anew=True) as observer:
            deeds = availability.Deeds(report.seed, house, ground, observer)
            begun = time.monotonic()
            per_s = availability.PER_S * report.scale
            load = Load(house.port, per_s=per_s, export_every_s=availability.EXPORT_EVERY_S)
            with deeds, load:
                time.sleep(availability.CALM_S)
                report.migrated_at_s = round(time.monotonic() - begun, 1)
                report.migrated_s = house.migrate()
                print(f"migrated in {report.migrated_s} s", flush=True)
                for kind in ORDER:
                    for which in "ab":
                        at = round(time.monotonic() - begun, 1)
                        one = f"{kind}-{which}"
                        report.replaced.append(Replaced(at, one, *house.replace(one)))
                        print(report.replaced[-1], flush=True)
                time.sleep(availability.CALM_S)
            report.seconds = round(time.monotonic() - begun, 1)
            report.take_load(load.requests, begun)
            for one in report.replaced:
                report.broken += one.faults()
            judge = Judge(house, observer, deeds, report)
            judge.wait_for_rest()
            judge.close_what_was_begun()
            judge.conclude(within_s=float("inf"))
        effects.judge(report, load.wishes, closed=deeds.to_close, within_s=availability.EFFECTS_S)
        report.starts = house.starts


def main(words: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.rolling_upgrade")
    parser.add_argument("--from", dest="old", default=RELEASE, metavar="COMMIT")
    parser.add_argument("--scale", type=float, default=1.0, help="of rows and load, 1 by default")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="it stops by itself")
    parser.add_argument("--seed", type=int, help="another one each time, if not given")
    given = parser.parse_args(words, namespace=argparse.Namespace(real=False))
    parts = (given.only,) if given.only else PARTS
    report = run(begin(given), old=given.old, scale=given.scale, parts=parts, minutes=given.minutes)
    return conclude(report)


if __name__ == "__main__":
    sys.exit(main())
