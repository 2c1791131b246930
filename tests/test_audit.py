"""What is not asked is never taken for what is safe."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests import audit

SAFE = {"name": "django", "version": "5.2", "vulns": []}
KNOWN = {"name": "django", "version": "5.2", "vulns": [{"id": "PYSEC-1"}]}
LEFT_OUT = {"name": "yarl", "skip_reason": "Dependency not found on PyPI and could not be audited"}


@pytest.mark.parametrize(
    ("rows", "want", "told"),
    [
        pytest.param([SAFE], 0, "of 1 packages by pypi: 0", id="nothing is known"),
        pytest.param([KNOWN], 1, "django 5.2: PYSEC-1", id="something is known"),
        pytest.param([SAFE, LEFT_OUT], 0, "NOT asked: none of", id="a mirror without advisories"),
        pytest.param(None, 0, "NOT asked: none of", id="no service"),
    ],
)
def test_only_whole_answers_count(monkeypatch, capsys, tmp_path: Path, rows, want: int, told: str):
    program = tmp_path / "pip-audit"
    answer = "no network" if rows is None else json.dumps({"dependencies": rows})
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert audit.main() == want
    assert told in capsys.readouterr().out


def test_without_the_program_nothing_is_promised(monkeypatch, capsys, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert audit.main() == 0
    assert "NOT asked: pip-audit is not installed" in capsys.readouterr().out
