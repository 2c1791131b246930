"""Two states of the code beside each other: an older commit, and this one with scratch migrations.

Both lie in folders of a run, so that neither the repository nor its branches are touched.
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
APP: Final = "budgets"
TABLE: Final = "budgets_probe"
FIRST: Final = "9001_new_table"
_TEXT: Final = """
from django.db import migrations, models

from budgets.migrations import _steps as steps


def fill(rows):
    rows.filter(n=None).update(n=1)


class Migration(migrations.Migration):
    atomic = {is_atomic}
    dependencies = [("budgets", "{before}")]
    operations = [{operation}]
"""
_ID: Final = '("id", models.BigAutoField(primary_key=True))'
_NUMBER: Final = '("n", models.IntegerField(null=True))'
_HIGH: Final = 'models.CheckConstraint(condition=models.Q(n__gte=0), name="probe_high")'
# One of each allowed kind, on a table of its own; the last three on tables in use.
KINDS: Final[Mapping[str, tuple[bool, str]]] = {
    FIRST: (True, f'migrations.CreateModel("Probe", [{_ID}, {_NUMBER}])'),
    "9002_nullable_column": (
        True, 'migrations.AddField("Probe", "more", models.TextField(null=True))',
    ),
    "9003_column_with_default": (
        True, 'migrations.AddField("Probe", "kind", models.IntegerField(db_default=0))',
    ),
    "9004_index_beside_writes": (
        False,
        'steps.AddIndexBesideWrites("Probe", models.Index(fields=["n"], name="probe_by_n"))',
    ),
    "9005_rows_in_batches": (
        False, 'migrations.RunPython(steps.InBatches("budgets", "Probe", fill))',
    ),
    "9006_check_for_new_rows": (True, f'steps.AddCheckForNewRows("Probe", {_HIGH})'),
    "9007_check_old_rows": (False, 'steps.CheckOldRows("Probe", "probe_high")'),
    "9008_table_that_refers": (
        True,
        f'migrations.CreateModel("Ref", [{_ID}, ("to", models.ForeignKey("budgets.Probe", '
        f'models.PROTECT))])',
    ),
    "9009_column_of_people": (
        True, 'migrations.AddField("User", "probe", models.TextField(null=True))',
    ),
    "9010_column_of_intervals": (
        True, 'migrations.AddField("Interval", "probe", models.IntegerField(db_default=0))',
    ),
    "9011_index_of_intervals": (
        False,
        'steps.AddIndexBesideWrites("Interval", models.Index(fields=["gpus"], name="probe_iv"))',
    ),
}  # fmt: skip


def check_out(commit: str, folder: Path) -> str:
    """Put a commit's files into a new folder; its whole name.

    Args:
        commit: As git takes it; empty for the files of the repository as they are now, as far as
            git knows them.
        folder: Is made.

    Raises:
        AssertionError: git does not know the commit, or is not there.
    """
    named = commit or _git("stash", "create").decode().strip() or "HEAD"
    whole = _git("rev-parse", "--verify", f"{named}^{{commit}}").decode().strip()
    with tarfile.open(fileobj=io.BytesIO(_git("archive", whole))) as files:
        files.extractall(folder, filter="data")
    return whole


def _git(*words: str) -> bytes:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, f"git {words[0]}: {done.stderr.decode()[-300:]}"
    return done.stdout


def add_scratch_migrations(tree: Path) -> None:
    """One of each kind that the rules allow, behind the app's last one."""
    folder = tree / APP / "migrations"
    before = max(path.stem for path in folder.glob("[0-9]*.py"))
    for name, (is_atomic, operation) in KINDS.items():
        text = _TEXT.format(is_atomic=is_atomic, before=before, operation=operation)
        (folder / f"{name}.py").write_text(text)
        before = name


def other_requirements(old: Path, new: Path) -> list[str]:
    """Packages that the two want in different versions; both run with the new ones."""
    pins = [
        {line.split(" ")[0] for line in (tree / "requirements.txt").read_text().splitlines()
         if "==" in line}
        for tree in (old, new)
    ]  # fmt: skip
    return sorted(pins[0] - pins[1])
