from __future__ import annotations

from dataclasses import dataclass

import pytest

from portal.web.bars import draw


@dataclass(frozen=True)
class Numbers:
    committed: int = 16
    ceiling: int = 32
    committed_used: int = 0
    burst: int = 0
    lent: int = 0
    pending: int = 0
    cap: int | None = None
    flavor: str = "h100"
    flavor_name: str = "H100"


def shapes(bar) -> dict[str, tuple[str, str]]:
    return {part.meaning: (part.x, part.width) for part in (*bar.tracks, *bar.fills)}


def test_bar_shows_the_numbers_of_the_pages_document():
    bar = draw(Numbers(committed_used=12, lent=4, pending=8))

    assert [words for _, words in bar.facts] == [
        "12 of 16 committed",
        "0 of 16 burst",
        "4 lent",
        "8 waiting",
    ]
    assert bar.text.startswith("H100: 12 GPUs in use; 12 of 16 committed")


@pytest.mark.parametrize(
    ("numbers", "want"),
    [
        pytest.param(
            Numbers(),
            {"committed": ("0.00", "50.00"), "burst": ("50.00", "50.00")},
            id="tracks end at committed and at the ceiling",
        ),
        pytest.param(
            Numbers(committed_used=12, lent=4),
            {
                "committed": ("0.00", "50.00"),
                "burst": ("50.00", "50.00"),
                "committed-used": ("0.00", "37.50"),
                "lent": ("37.50", "12.50"),
            },
            id="lent stands at the far end of the committed track",
        ),
        pytest.param(
            Numbers(committed_used=16, burst=8, pending=8),
            {
                "committed": ("0.00", "50.00"),
                "burst": ("50.00", "50.00"),
                "committed-used": ("0.00", "50.00"),
                "burst-used": ("50.00", "25.00"),
                "pending": ("75.00", "25.00"),
            },
            id="waiting begins where the use ends",
        ),
        pytest.param(
            Numbers(committed_used=16, pending=4096),
            {
                "committed": ("0.00", "25.00"),
                "burst": ("25.00", "25.00"),
                "committed-used": ("0.00", "25.00"),
                "pending": ("25.00", "75.00"),
            },
            id="a long queue leaves the budget its half",
        ),
        pytest.param(
            Numbers(committed=0, ceiling=0, pending=8),
            {"pending": ("0.00", "100.00")},
            id="nothing promised and something waiting",
        ),
    ],
)
def test_bar_segments(numbers, want):
    assert shapes(draw(numbers)) == want


def test_bar_above_the_ceiling_says_so_in_words_and_stays_inside():
    bar = draw(Numbers(committed_used=16, burst=24))

    words = "40 in use, 8 above the burst limit of 32: they finish, and nothing new starts"
    assert bar.facts == (
        ("committed", "16 of 16 committed"),
        ("burst", "16 of 16 burst"),
        ("trouble", words),
    )
    ends = [float(part.x) + float(part.width) for part in (*bar.tracks, *bar.fills)]
    assert max(ends) <= 100.0
    assert float(bar.tick) == 80.0


def test_bar_of_a_budget_without_burst_says_nothing_of_burst_when_it_is_over():
    bar = draw(Numbers(committed=16, ceiling=16, committed_used=16, burst=5))

    assert [words for _, words in bar.facts] == [
        "16 of 16 committed",
        "21 in use, 5 above the burst limit of 16: they finish, and nothing new starts",
    ]


def test_bar_cap_is_a_tick_of_its_own():
    bar = draw(Numbers(committed_used=12, cap=16))

    assert (bar.cap, bar.tick) == ("50.00", "100.00")
    assert ("cap", "capped at 16") in bar.facts


def test_bar_of_an_empty_line_divides_by_nothing():
    assert draw(Numbers(committed=0, ceiling=0)).fills == ()
