"""The lanes of the whole test run."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from tests import lanes


def test_lanes_beside_each_other_print_whole_and_tell_what_failed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def chatty(word: str, works: bool) -> lanes.Callable[[], bool]:
        script = f"import time\nfor _ in range(3): print({word!r}, flush=True); time.sleep(0.05)"
        return lambda: lanes.run(lanes.PYTHON, "-c", script) and works

    found = {"one": chatty("A", True), "two": chatty("B", False), "three": chatty("C", True)}
    monkeypatch.setattr(lanes, "LANES", found)

    assert lanes.main([]) == 1

    printed = capfd.readouterr().out
    for word in "ABC":
        assert f"{word}\n{word}\n{word}\n" in printed
    assert "two           failed" in printed
    assert "three         passed" in printed


def test_the_lane_that_bounds_seconds_begins_when_all_others_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    under_way: set[str] = set()
    beside: dict[str, set[str]] = {}

    def lane(name: str) -> lanes.Callable[[], bool]:
        def run() -> bool:
            under_way.add(name)
            time.sleep(0.05)
            beside[name] = under_way - {name}
            under_way.discard(name)
            return True

        return run

    names = (lanes.LAST_AND_ALONE, "one", "two", "three")
    monkeypatch.setattr(lanes, "LANES", {name: lane(name) for name in names})

    assert lanes.main([]) == 0

    assert list(beside)[-1] == lanes.LAST_AND_ALONE
    assert beside[lanes.LAST_AND_ALONE] == set()


def test_lanes_give_their_tests_the_environment_that_they_were_given() -> None:
    """What Django is set up with there would hold in each lane."""
    code = "import os; found = dict(os.environ); import tests.lanes; assert found == os.environ"
    subprocess.run([lanes.PYTHON, "-c", code], cwd=lanes.ROOT, check=True)


def test_a_missing_part_fails_in_ci_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def needs_more() -> bool:
        raise lanes.Missing("no such server")

    monkeypatch.setattr(lanes, "LANES", {"one": needs_more})
    monkeypatch.setattr(lanes, "IN_CI", False)
    assert lanes.main(["one"]) == 0
    monkeypatch.setattr(lanes, "IN_CI", True)
    assert lanes.main(["one"]) == 1


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test run in a test run, without what takes seconds to import and is not needed there."""
    without = ("django", "randomly", "hypothesispytest", "faker", "time_machine")
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(f"-p no:{name}" for name in without))


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("beside", [lanes.BESIDE, ()])
def test_a_failed_test_fails_its_lane_and_is_not_tried_again(
    beside: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = tmp_path / "tries"
    (tmp_path / "test_late.py").write_text(
        "from pathlib import Path\n"
        "def test_in_time(): pass\n"
        "def test_late():\n"
        f"    tries = Path({str(tries)!r})\n"
        "    tries.touch()\n"
        "    tries.write_text(tries.read_text() + '.')\n"
        "    assert len(tries.read_text()) > 1\n"
    )
    lane = lambda: lanes.pytest("", str(tmp_path), *beside)  # noqa: E731
    monkeypatch.setattr(lanes, "LANES", {"one": lane})

    assert lanes.main(["one"]) == 1

    assert tries.read_text() == "."


@pytest.mark.usefixtures("plain")
def test_what_did_not_hold_is_said_again_before_the_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A reader of a pipeline sees the end of some thousand lines."""
    (tmp_path / "test_some.py").write_text(
        "def test_in_time(): pass\n"
        "def test_late():\n"
        "    assert ' '.join(['far', 'too', 'late']) == ''\n"
    )
    tests = lambda: lanes.pytest("", str(tmp_path))  # noqa: E731
    monkeypatch.setattr(lanes, "LANES", {"one": tests, "two": lambda: lanes.run("true")})

    assert lanes.main([]) == 1

    again = capfd.readouterr().out.partition("=== failed in lane one ===")[2]
    assert "__ test_late __" in again
    assert "E       AssertionError: assert 'far too late' == ''" in again
    assert "test_in_time" not in again
    assert again.index("test_late") < again.index("=== summary ===")


@pytest.mark.parametrize("mark", lanes.PLACES)
def test_a_lane_with_folders_has_all_its_tests_there(mark: str) -> None:
    word = f"pytest.mark.{mark}"
    found = {path for path in lanes.ROOT.glob("tests/**/*.py") if word in path.read_text()}
    assert found
    folders = [lanes.ROOT / folder for folder in lanes.PLACES[mark]]
    assert [path for path in found if not any(path.is_relative_to(f) for f in folders)] == []


def test_the_hooks_before_a_commit_run_what_the_project_pins() -> None:
    """Nothing is fetched when somebody commits: each tool is one of requirements-dev.txt."""
    found = yaml.safe_load((lanes.ROOT / ".pre-commit-config.yaml").read_text())
    pinned = (lanes.ROOT / "requirements-dev.txt").read_text()
    [repository] = found["repos"]
    assert repository["repo"] == "local"
    packages = {"lint-imports": "import-linter", "python": "django"}
    for hook in repository["hooks"]:
        program = hook["entry"].split()[0].removeprefix(".venv/bin/")
        assert re.search(rf"^{packages.get(program, program)}==", pinned, re.MULTILINE), program
