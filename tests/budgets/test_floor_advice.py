"""The floor that would have been enough."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgets.metering import advise_floor

GPU_HOUR = 3600


@pytest.mark.parametrize(
    ("used", "committed", "want"),
    [
        pytest.param([4 * GPU_HOUR] * 48, 16, (4, 12 * 730, 0), id="steady use"),
        pytest.param([0] * 48, 16, (0, 16 * 730, 0), id="never used"),
        pytest.param([GPU_HOUR + 1] * 48, 16, (2, 14 * 730, 0), id="a part of a GPU is a GPU"),
        pytest.param(
            [4 * GPU_HOUR] * 95 + [16 * GPU_HOUR] * 5, 16, (4, 12 * 730, 5), id="5 % are burst"
        ),
        pytest.param(
            [4 * GPU_HOUR] * 94 + [12 * GPU_HOUR] * 6, 16, (12, 4 * 730, 0), id="6 % are not"
        ),
    ],
)
def test_floor_that_covers_95_of_100_hours(used, committed, want):
    advice = advise_floor(used, committed=committed)
    assert advice is not None
    assert (advice.enough, advice.saved_hours, advice.hours_over) == want
    assert (advice.committed, advice.hours) == (committed, len(used))


@pytest.mark.parametrize(
    ("used", "committed"),
    [
        pytest.param([16 * GPU_HOUR] * 48, 16, id="all of it is used"),
        pytest.param([20 * GPU_HOUR] * 48, 16, id="more than all of it"),
        pytest.param([15 * GPU_HOUR + 1] * 48, 16, id="not a whole GPU less"),
        pytest.param([0] * 23, 16, id="less than a day to judge from"),
        pytest.param([], 16, id="nothing to judge from"),
        pytest.param([0] * 48, 0, id="no floor"),
    ],
)
def test_no_advice_where_there_is_none_to_give(used, committed):
    assert advise_floor(used, committed=committed) is None


@pytest.mark.parametrize(("used", "committed"), [([-1] * 24, 1), ([0] * 24, -1)])
def test_negative_numbers_are_refused(used, committed):
    with pytest.raises(ValueError, match="never negative"):
        advise_floor(used, committed=committed)


@given(
    st.lists(st.integers(0, 64 * GPU_HOUR), min_size=24, max_size=300),
    st.integers(0, 64),
)
def test_advice_is_the_smallest_floor_that_covers_enough(used, committed):
    def covers(floor: int) -> bool:
        return sum(seconds <= floor * GPU_HOUR for seconds in used) * 100 >= 95 * len(used)

    smallest = next(floor for floor in range(66) if covers(floor))
    advice = advise_floor(used, committed=committed)
    if smallest >= committed:
        assert advice is None
    else:
        assert advice is not None
        assert advice.enough == smallest
        assert advice.saved_hours == (committed - smallest) * 730
