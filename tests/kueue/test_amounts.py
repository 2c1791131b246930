from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.kueue.amounts import (
    UNLIMITED,
    add,
    add_usage,
    format_amount,
    multiply,
    parse_amount,
    parse_decimal,
    subtract,
    visiting_rank,
    with_suffix,
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


LOWEST = -(2**63)


@pytest.mark.parametrize(
    ("function", "amount", "other", "want"),
    [
        pytest.param(add, 2, 3, 5, id="a sum"),
        pytest.param(add, UNLIMITED - 1, 1, UNLIMITED, id="a sum at the upper end"),
        pytest.param(add, UNLIMITED - 1, 2, UNLIMITED, id="a sum beyond it"),
        pytest.param(add, LOWEST, 0, LOWEST, id="a sum at the lower end"),
        pytest.param(add, LOWEST + 1, -1, LOWEST, id="a sum that comes to it"),
        pytest.param(add, LOWEST, -1, LOWEST, id="a sum below it"),
        pytest.param(add, LOWEST, UNLIMITED, UNLIMITED, id="anything and no bound"),
        pytest.param(subtract, 2, 3, -1, id="a difference"),
        pytest.param(subtract, 3, UNLIMITED, LOWEST, id="less without bound"),
        pytest.param(subtract, UNLIMITED, LOWEST, UNLIMITED, id="no bound less anything"),
        pytest.param(subtract, UNLIMITED - 1, -1, UNLIMITED, id="a difference at the upper end"),
        pytest.param(subtract, UNLIMITED - 1, -2, UNLIMITED, id="a difference beyond it"),
        pytest.param(subtract, LOWEST + 1, 1, LOWEST, id="a difference at the lower end"),
        pytest.param(subtract, LOWEST, 1, LOWEST, id="a difference below it"),
        pytest.param(multiply, 7, 6, 42, id="a product"),
        pytest.param(multiply, -7, 6, -42, id="a product below zero"),
        pytest.param(multiply, 2**62, -3, LOWEST, id="a product below the lower end"),
        pytest.param(multiply, 2**62, 2, UNLIMITED, id="a product beyond the upper end"),
        pytest.param(multiply, (2**63 - 1) // 7, 7, UNLIMITED, id="a product at the upper end"),
    ],
)
def test_amounts_stay_within_their_range(function, amount, other, want):
    assert function(amount, other) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("1", "1"),
        ("1.", "1"),
        (".5", "0.5"),
        ("-3", "-3"),
        ("+3", "3"),
        ("3n", "0.000000003"),
        ("3u", "0.000003"),
        ("3m", "0.003"),
        ("3k", "3000"),
        ("3M", "3000000"),
        ("3G", "3000000000"),
        ("3T", "3000000000000"),
        ("3P", "3000000000000000"),
        ("3E", "3000000000000000000"),
        ("3Ki", "3072"),
        ("3Mi", "3145728"),
        ("3Gi", "3221225472"),
        ("3Ti", "3298534883328"),
        ("3Pi", "3377699720527872"),
        ("3Ei", "3458764513820540928"),
        ("1.5e3", "1500"),
        ("2E2", "200"),
        ("1e1000", "1e1000"),
        ("0" * 999 + "7", "7"),
    ],
)
def test_a_quantity_has_an_exact_value(text, want):
    assert parse_decimal(text) == Decimal(want)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "not a quantity: ''"),
        ("m", "not a quantity: 'm'"),
        ("Infinity", "not a quantity: 'Infinity'"),
        ("1e", "not a quantity: '1e'"),
        ("1.2.3", "not a quantity: '1.2.3'"),
        ("1K", "not a quantity: '1K'"),
        ("1 m", "not a quantity: '1 m'"),
        ("1e1001", "not a quantity: '1e1001'"),
        ("0" * 1001, f"not a quantity: '{'0' * 20}' … of 1001 characters"),
    ],
)
def test_what_is_no_quantity_is_quoted(text, want):
    with pytest.raises(ValueError) as failure:
        parse_decimal(text)
    assert str(failure.value) == want


@pytest.mark.parametrize(
    ("text", "resource", "want"),
    [
        ("1", "cpu", 1000),
        ("1", "memory", 1),
        ("1.0001", "cpu", 1001),
        ("-0.0001", "cpu", -1),
        ("-100m", "memory", -1),
        ("9223372036854775806", "memory", UNLIMITED - 1),
        ("9223372036854775808", "memory", UNLIMITED),
        ("9223372036854775.807", "cpu", UNLIMITED),
        ("9223372036854775.806", "cpu", UNLIMITED - 1),
    ],
)
def test_amounts_are_rounded_away_from_zero_and_end_without_bound(text, resource, want):
    assert parse_amount(text, resource) == want


@pytest.mark.parametrize(
    ("amount", "resource", "want"),
    [
        (-500, "cpu", "-500m"),
        (-2000, "cpu", "-2"),
        (1000, "cpu", "1"),
        (1, "cpu", "1m"),
        (1023, "memory", "1023"),
        (1024, "memory", "1Ki"),
        (-1024, "memory", "-1Ki"),
        (-1000, "memory", "-1k"),
        (1025, "ephemeral-storage", "1025"),
        (2048, "ephemeral-storage", "2Ki"),
        (2048, "storage", "2Ki"),
        (2048, "hugepages-1Gi", "2Ki"),
        (1024_000, "memory", "1000Ki"),
        (2048, "gpu", "2048"),
        (2**60, "memory", "1Ei"),
        (10**18, "gpu", "1E"),
        (5 * 10**18, "gpu", "5E"),
    ],
)
def test_an_amount_is_written_as_kubernetes_does(amount, resource, want):
    assert format_amount(amount, resource) == want


def test_an_amount_takes_the_largest_step_in_which_it_is_whole():
    steps = ("", "a", "b")
    found = [with_suffix(amount, 10, steps) for amount in (0, 7, 10, 70, 100, 101, 1000, -30)]
    assert found == ["0", "7", "1a", "7a", "1b", "101", "10b", "-3a"]


def test_the_rank_of_a_resource_is_its_hash():
    # The offset basis of 64-bit FNV-1a, and its published values.
    assert visiting_rank("") == 0xCBF29CE484222325
    assert visiting_rank("a") == 0xAF63DC4C8601EC8C
    assert visiting_rank("foobar") == 0x85944171F73967E8


def test_usage_is_added_in_place():
    total = {"a": 1, "b": UNLIMITED}
    add_usage(total, {"a": 2, "b": 5, "c": 3})
    assert total == {"a": 3, "b": UNLIMITED, "c": 3}
