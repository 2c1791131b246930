"""Laws of the meter and the charges on random ledgers, and a second implementation."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from budgets.charging import charge, differences, read_ledger, work_out
from budgets.metering import identity_faults, meter
from budgets.units import Period, utc_hour
from tests.ledger import naive
from tests.ledger.ledgers import ledgers

quick = settings(max_examples=60, database=None)
RARE = settings(quick, max_examples=3000)


@quick
@given(record=ledgers())
def test_naive_implementation_agrees(record):
    assert differences(work_out(read_ledger(record)), naive.work_out(record)) == []


@pytest.mark.slow
@RARE
@given(record=ledgers())
def test_naive_implementation_agrees_on_thousands(record):
    assert differences(work_out(read_ledger(record)), naive.work_out(record)) == []


def metered(ledger, window=None):
    return meter(ledger.held, ledger.revisions, ledger.pools, window or ledger.window)


@quick
@given(record=ledgers(longest=9000))
def test_identities_hold(record):
    ledger = read_ledger(record)
    assert identity_faults(metered(ledger), pools=ledger.pools) == ()


@quick
@given(record=ledgers(longest=12000), cut=st.integers(1, 3))
def test_window_is_the_sum_of_its_hour_aligned_parts(record, cut):
    ledger = read_ledger(record)
    window = ledger.window
    edge = utc_hour(window.start) + timedelta(hours=cut)
    whole = metered(ledger)
    if edge not in window or edge == window.start:
        return
    parts = [metered(ledger, Period(*pair)) for pair in [(window.start, edge), (edge, window.end)]]
    assert parts[0].hours + parts[1].hours == whole.hours
    assert parts[0].accounts + parts[1].accounts == whole.accounts
    assert parts[0].workloads + parts[1].workloads == whole.workloads


@quick
@given(record=ledgers(longest=5000), seed=st.randoms(use_true_random=False))
def test_order_of_the_input_carries_no_meaning(record, seed):
    before = work_out(read_ledger(record))
    held = list(record["intervals"])
    seed.shuffle(held)
    shuffled = {**record, "intervals": held, "accounts": record["accounts"][::-1]}
    assert differences(work_out(read_ledger(shuffled)), before) == []


@quick
@given(record=ledgers(longest=9000))
def test_charges_add_up_and_the_books_balance(record):
    ledger = read_ledger(record)
    charges = charge(metered(ledger), ledger.rate_card, workspaces=ledger.pools.accounts)
    for total in charges.totals:
        rows = [line for line in charges.lines if line.workspace == total.workspace]
        assert sum(line.amount.amount for line in rows) + total.rounding.amount == (
            total.payable.amount
        )
        assert sum(line.exact for line in rows) == total.exact
    credits = [line for line in charges.lines if line.kind == "lending_credit"]
    assert charges.platform_funding.amount == charges.platform_rounding.amount - sum(
        line.amount.amount for line in credits
    )
    for line in charges.lines:
        assert sum(part.gpu_seconds for part in line.parts) == line.gpu_seconds
        priced = (part for part in line.parts if part.rate is not None)
        assert line.exact == sum(
            (part.rate.of(line.kind) * part.gpu_seconds / 3600 for part in priced), Fraction(0)
        )


@quick
@given(record=ledgers(longest=5000))
def test_no_lender_lends_more_than_it_had_idle(record):
    ledger = read_ledger(record)
    usage = metered(ledger)
    assert min((fact.idle for fact in usage.hours), default=0) >= 0
    assert all(fact.borrowed <= fact.burst + 1 for fact in usage.hours)


@quick
@given(record=ledgers(longest=9000))
def test_gpu_seconds_of_workloads_are_those_held(record):
    ledger = read_ledger(record)
    window = ledger.window
    want: Counter[str] = Counter()
    for row in ledger.held:
        end = row.end or window.end
        part = Period(row.start, end).overlap(window) if row.start < end else None
        want[row.uid] += row.gpus * (part.seconds if part else 0)
    got: Counter[str] = Counter()
    for fact in metered(ledger).workloads:
        got[fact.uid] += fact.committed_used + fact.burst
    assert +got == +want
