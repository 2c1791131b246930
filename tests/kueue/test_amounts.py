from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.kueue.amounts import (
    UNLIMITED,
    add,
    format_amount,
    multiply,
    parse_amount,
    subtract,
    visiting_rank,
)


@pytest.mark.parametrize(
    ("text", "resource", "want_amount"),
    [
        pytest.param("8", "nvidia.com/gpu", 8, id="plain number"),
        pytest.param("250m", "cpu", 250, id="cpu counts in thousandths"),
        pytest.param("1.5", "cpu", 1500, id="decimal cpu"),
        pytest.param("0.0001", "cpu", 1, id="finer fractions go up"),
        pytest.param("100m", "memory", 1, id="fraction of a byte goes up"),
        pytest.param("1Gi", "memory", 2**30, id="binary suffix"),
        pytest.param("1e3", "pods", 1000, id="exponent"),
        pytest.param("2E", "memory", 2 * 10**18, id="E as a suffix"),
        pytest.param("9223372036854775807", "memory", UNLIMITED, id="largest means no bound"),
        pytest.param("9223372036854776", "cpu", UNLIMITED, id="cpu beyond the largest milli"),
    ],
)
def test_parse_amount_reads_kubernetes_quantities(text, resource, want_amount):
    assert parse_amount(text, resource) == want_amount


@pytest.mark.parametrize("text", ["", "eight", "1Q", "Gi", "NaN", "1 Gi"])
def test_parse_amount_refuses_what_is_no_quantity(text):
    with pytest.raises(ValueError, match="not a quantity"):
        parse_amount(text, "cpu")


@pytest.mark.parametrize(
    ("amount", "resource", "want_text"),
    [
        pytest.param(1500, "cpu", "1500m", id="fraction of a cpu stays in thousandths"),
        pytest.param(3000, "cpu", "3", id="whole cpus"),
        pytest.param(3_000_000, "cpu", "3k", id="thousands of cpus"),
        pytest.param(2**30, "memory", "1Gi", id="binary suffix"),
        pytest.param(1536 * 2**20, "memory", "1536Mi", id="largest suffix that stays whole"),
        pytest.param(1000, "memory", "1k", id="below 1024 decimal"),
        pytest.param(4 * 2**20, "hugepages-2Mi", "4Mi", id="hugepages are binary"),
        pytest.param(0, "nvidia.com/gpu", "0", id="zero"),
        pytest.param(12_000, "nvidia.com/gpu", "12k", id="devices are decimal"),
    ],
)
def test_format_amount_is_canonical(amount, resource, want_text):
    assert format_amount(amount, resource) == want_text


@given(st.integers(0, 2**62), st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]))
def test_format_amount_reads_back_as_the_same(amount, resource):
    assert parse_amount(format_amount(amount, resource), resource) == amount


def test_unlimited_absorbs_and_clamps():
    assert add(UNLIMITED, 5) == UNLIMITED
    assert add(5, UNLIMITED) == UNLIMITED
    assert subtract(UNLIMITED, 5) == UNLIMITED
    assert subtract(UNLIMITED, UNLIMITED) == 0
    assert subtract(5, UNLIMITED) == -(2**63)
    assert multiply(2**62, 8) == UNLIMITED


def test_visiting_order_of_resources_is_the_hash_order():
    names = ["cpu", "pods", "memory", "nvidia.com/gpu", "ephemeral-storage", "amd.com/gpu"]
    assert sorted(names, key=visiting_rank) == [
        "ephemeral-storage",
        "amd.com/gpu",
        "memory",
        "nvidia.com/gpu",
        "pods",
        "cpu",
    ]
