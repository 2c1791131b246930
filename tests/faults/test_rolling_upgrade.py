"""An older commit is upgraded under load; and what the run would notice."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import replace

import pytest

from tests.faults import trees
from tests.faults.limits import OutOfTime, no_longer_than
from tests.faults.lock_probe import WAIT_S, Step
from tests.faults.rolling_upgrade import (
    RELEASE,
    Replaced,
    run,
)
from tests.front import nginx_program
from tests.lanes import IN_CI
from tests.servers import has_postgres

SEED = 20261125
WELL = Step("9002_nullable_column", 0.5, statements=10, slowest_s=0.4, wait_s=0.3)
NEEDS_POSTGRES = pytest.mark.skipif(not has_postgres(), reason="no PostgreSQL server")


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """The files of release 0.1."""
    folder = tmp_path_factory.mktemp("release") / "tree"
    try:
        trees.check_out(RELEASE, folder)
    except AssertionError as error:
        pytest.skip(f"no history of the repository: {error}")
    return folder


def test_older_commit_lies_beside_this_one(release):
    assert (release / "budgets/migrations/0002_triggers.py").exists()
    assert not (release / "budgets/migrations/_steps.py").exists()


def test_scratch_migrations_follow_the_last_one(tmp_path):
    folder = tmp_path / "budgets/migrations"
    folder.mkdir(parents=True)
    (folder / "0041_last.py").touch()
    (folder / "_steps.py").touch()
    trees.add_scratch_migrations(tmp_path)
    before = "0041_last"
    for name in trees.KINDS:
        text = (folder / f"{name}.py").read_text()
        compile(text, name, "exec")
        assert f'("budgets", "{before}")' in text
        before = name


def test_other_packages_of_the_old_commit_are_named(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for tree, pin in ((old, "celery==1.0"), (new, "celery==1.1")):
        tree.mkdir()
        (tree / "requirements.txt").write_text(f"{pin} \\\n    --hash=sha256:00\ndjango==5 \\\n")
    assert trees.other_requirements(old, new) == ["celery==1.0"]
    assert trees.other_requirements(new, new) == []


def test_who_waits_too_long_or_does_not_come_back_is_a_fault():
    assert not list(WELL.faults())
    assert list(replace(WELL, wait_s=WAIT_S + 0.01).faults())
    assert list(replace(WELL, refused=1).faults())
    assert list(replace(WELL, seconds=3.0, statements=0).faults())
    well = Replaced(0.0, "web-a", ended_s=1.0, well_s=2.0)
    assert not list(well.faults())
    assert list(replace(well, ended_s=None).faults())
    assert list(replace(well, well_s=None).faults())


def test_run_stops_by_itself_even_where_errors_are_expected():
    with pytest.raises(OutOfTime), no_longer_than(0.01), contextlib.suppress(OSError):
        signal.pause()


@NEEDS_POSTGRES
@pytest.mark.slow
@pytest.mark.redis
def test_old_and_new_work_side_by_side_while_tables_change(release):
    if nginx_program() is None:
        (pytest.fail if IN_CI else pytest.skip)("no nginx: install Debian's nginx")
    report = run(SEED)
    print(report.text())
    report.store()
    assert not report.broken
    assert report.is_rolled
    assert report.holds
    # What the rules refuse does keep writers waiting, so the probe would have seen it.
    in_one_step = report.probe.in_one_step
    assert in_one_step.wait_s > max(step.wait_s for step in report.probe.steps)
