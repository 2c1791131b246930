"""Whole numbers of strangers: bounded and total, whatever they wrote."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.documents.conditions import MESSAGE_LIMIT, Condition, with_conditions
from clusters.documents.keys import key_of, uid_of, version_of
from clusters.documents.numbers import LARGEST, whole_number
from clusters.kueue.amounts import parse_amount

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ANYTHING = st.one_of(
    st.text(), st.integers(), st.floats(), st.none(), st.booleans(), st.lists(st.integers())
)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("0", 0, id="nought"),
        pytest.param("8", 8, id="a number"),
        pytest.param("007", 7, id="leading noughts"),
        pytest.param(8, 8, id="a number of a field"),
        pytest.param(str(LARGEST), LARGEST, id="the largest"),
        pytest.param(str(LARGEST + 1), None, id="larger than a field can hold"),
        pytest.param("9" * 5000, None, id="five thousand digits"),
        pytest.param("1e999999", None, id="an exponent"),
        pytest.param("-1", None, id="below the least"),
        pytest.param("", None, id="nothing"),
        pytest.param(" 8", None, id="a space"),
        pytest.param("٨", None, id="another script's digit"),
        pytest.param("8.0", None, id="a fraction"),
        pytest.param(True, None, id="a truth value"),
        pytest.param(8.0, None, id="a float"),
        pytest.param(["8"], None, id="a list"),
        pytest.param(None, None, id="no value"),
    ],
)
def test_whole_number_reads_decimal_digits_and_refuses_the_rest(text: Any, want: int | None):
    assert whole_number(text) == want


def test_whole_number_keeps_to_its_bounds():
    assert whole_number("-3", least=-5) == -3
    assert whole_number("3", least=4) is None
    assert whole_number("3", most=2) is None


@given(ANYTHING)
def test_whole_number_never_raises_and_stays_within_bounds(found: Any):
    number = whole_number(found, least=-10, most=10)
    assert number is None or -10 <= number <= 10


def test_a_text_of_many_digits_is_refused_at_once():
    text = "9" * 10_000_000
    begun = time.process_time()
    assert whole_number(text) is None
    assert version_of({"metadata": {"resourceVersion": text}}) == 0
    assert time.process_time() - begun < 0.1


def test_an_object_is_named_by_namespace_and_name():
    scoped = {"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7"}}
    assert (key_of(scoped), uid_of(scoped), version_of(scoped)) == ("n/a", "u", 7)
    assert key_of({"metadata": {"name": "a"}}) == "a"
    assert (uid_of({"metadata": {}}), version_of({"metadata": {}})) == ("", 0)


def test_a_message_of_a_condition_is_cut_to_what_an_api_server_takes():
    wish = Condition("Ready", True, "Said", "é" * MESSAGE_LIMIT)
    (entry,) = with_conditions({"metadata": {}}, [wish], now=NOON)
    assert MESSAGE_LIMIT - 8 < len(entry["message"].encode()) <= MESSAGE_LIMIT
    assert entry["message"].endswith("é ...")


@pytest.mark.parametrize(
    "text", ["1e999999", "-1e999999", "9" * 1_000_000, "1e5000Gi"], ids=lambda text: text[:10]
)
def test_a_quantity_beyond_all_that_can_be_counted_is_refused_at_once(text: str):
    begun = time.process_time()
    with pytest.raises(ValueError, match="not a quantity"):
        parse_amount(text, "cpu")
    assert time.process_time() - begun < 0.1
