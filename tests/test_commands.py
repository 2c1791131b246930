"""The command line of the portal: what a person reads when something is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command, get_commands, load_command_class
from django.core.management.base import CommandError

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("command", [("worker_rbac",), ("why", "a/b"), ("verify_ledger",)])
def test_a_database_without_tables_is_no_traceback(tmp_path: Path, command: tuple[str, ...]):
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "DATABASE_URL": f"sqlite:///{tmp_path}/empty.sqlite3",
    }
    done = subprocess.run(
        [sys.executable, "manage.py", *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "manage.py migrate" in done.stderr


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("command", "want"),
    [
        pytest.param(("rehearse", "--manager", "m"), "go together", id="half a fleet"),
        pytest.param(("rehearse", "--cluster", "none"), "none cannot be read", id="no kubeconfig"),
        pytest.param(("replay_admission", "{file}"), "line 1 is not a scenario", id="no scenario"),
        pytest.param(("replay_admission", "none"), "none cannot be read", id="no file"),
        pytest.param(("replay_ledger", "none"), "none cannot be read", id="no ledger"),
        pytest.param(("verify_ledger", "--month", "May"), "No closed month is named", id="month"),
        pytest.param(
            ("seed_demo", "--kubeconfigs", "none"), "none holds no kubeconfigs", id="seed"
        ),
        pytest.param(
            ("demo_jobs", "--kubeconfigs", "none"), "none holds no kubeconfigs", id="jobs"
        ),
        pytest.param(("worker_rbac", "--cluster", "moon"), "No cluster 'moon'", id="no cluster"),
        pytest.param(("worker_rbac", "--operator", "x"), "NAMESPACE/NAME", id="no operator"),
        pytest.param(("what_if", "drain", "moon"), "There is no cluster 'moon'", id="no worker"),
        pytest.param(("why", "a/b", "--kubeconfig", "none"), "none cannot be read", id="why"),
    ],
)
def test_what_a_command_cannot_use_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], want: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("[]\n")
    with pytest.raises(CommandError, match=want):
        call_command(*(word.format(file="file") for word in command))


def test_every_argument_of_a_command_is_described() -> None:
    for name, app in get_commands().items():
        if app in {"budgets", "clusters", "portal"}:
            parser = load_command_class(app, name).create_parser("manage.py", name)
            assert parser.description, name
            undescribed = [each.dest for each in parser._actions if not each.help]
            assert undescribed in ([], ["change"]), f"{name}: {undescribed}"
