"""The lanes of the whole test run."""

from __future__ import annotations

import pytest

from tests import lanes


def test_every_lane_is_in_one_stream() -> None:
    assert sorted(name for stream in lanes.STREAMS for name in stream) == sorted(lanes.LANES)


def test_lanes_beside_each_other_print_whole_and_tell_what_failed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def chatty(word: str, works: bool) -> lanes.Callable[[], bool]:
        script = f"import time\nfor _ in range(3): print({word!r}, flush=True); time.sleep(0.05)"
        return lambda: lanes.run(lanes.PYTHON, "-c", script) and works

    monkeypatch.setattr(lanes, "STREAMS", (("one",), ("two", "three")))
    found = {"one": chatty("A", True), "two": chatty("B", False), "three": chatty("C", True)}
    monkeypatch.setattr(lanes, "LANES", found)

    assert lanes.main([]) == 1

    printed = capfd.readouterr().out
    for word in "ABC":
        assert f"{word}\n{word}\n{word}\n" in printed
    assert "two           failed" in printed
    assert "three         passed" in printed


def test_a_missing_part_fails_in_ci_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def needs_more() -> bool:
        raise lanes.Missing("no such server")

    monkeypatch.setattr(lanes, "LANES", {"one": needs_more})
    monkeypatch.setattr(lanes, "IN_CI", False)
    assert lanes.main(["one"]) == 0
    monkeypatch.setattr(lanes, "IN_CI", True)
    assert lanes.main(["one"]) == 1
