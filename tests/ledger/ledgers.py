"""Random small ledgers in the format of ``replay_ledger``, and the recorded ones."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import strategies as st

START = datetime(2026, 3, 28, 21, 58, 30, tzinfo=UTC)
FLAVORS = ("h100", "l4")


def recorded() -> Path:
    """The recorded ledgers; their absence is a skip, or in CI a failure."""
    path = Path(__file__).resolve().parents[3] / "shared" / "conformance" / "ledger.jsonl.gz"
    if not path.exists():
        reason = f"the recorded ledgers ../shared/conformance/{path.name} are not here"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def text(second: int) -> str:
    return (START + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")


@st.composite
def ledgers(draw, *, longest: int = 200):
    """A ledger of up to 3 accounts over some minutes around two hour edges."""
    length = draw(st.integers(1, longest))
    accounts = ["acme", "beta", "zeta"][: draw(st.integers(1, 3))]
    names = ["w1", "w2", "w3", "w4"][: draw(st.integers(1, 4))]
    moments = st.integers(-40, length + 40)
    gpus = st.integers(0, 9)
    some_gpus = st.dictionaries(st.sampled_from(FLAVORS), gpus, max_size=2)
    line = st.fixed_dictionaries(
        {
            "flavor": st.sampled_from(FLAVORS),
            "committed": gpus,
            "burst": st.just(20),
            "lendable": st.none() | gpus,
        }
    )
    revisions = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "workspace": st.sampled_from(names),
                    "from": moments.map(text),
                    "lines": st.lists(line, max_size=2, unique_by=lambda row: row["flavor"]),
                }
            ),
            max_size=8,
        )
    )
    price = st.integers(0, 400_000_000).map(lambda n: f"{n / 10**8:.8f}")
    rates = draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "flavor": st.sampled_from(FLAVORS),
                    "from": st.integers(-2, 2).map(lambda hour: text(hour * 3600 - 3510)),
                    "committed": price,
                    "burst": price,
                    "lending_credit": st.sampled_from(["0", "0.333333", "0.5", "1"]),
                }
            ),
            max_size=5,
            unique_by=lambda row: (row["flavor"], row["from"]),
        )
    )
    pooled = draw(st.booleans())
    return {
        "name": "random",
        "currency": draw(st.sampled_from(["USD", "JPY", "KWD"])),
        "period": {"start": text(0), "end": text(length)},
        "accounts": [{"name": name, "shared_pool": draw(some_gpus)} for name in accounts],
        "platform_pools": [{"accounts": accounts, "gpus": draw(some_gpus)}] if pooled else [],
        "workspaces": [
            {"name": name, "account": draw(st.sampled_from(accounts))} for name in names
        ],
        "revisions": revisions,
        "rates": rates,
        "intervals": draw(_intervals(names, moments)),
    }


@st.composite
def _intervals(draw, names, moments):
    rows = []
    for at in range(draw(st.integers(0, 9))):
        start = draw(moments)
        row = {
            "uid": f"u{draw(st.integers(0, 3))}-{at}",
            "workspace": draw(st.sampled_from(names)),
            "flavor": draw(st.sampled_from(FLAVORS)),
            "admitted": text(start - draw(st.integers(0, 20))),
        }
        for _ in range(draw(st.integers(1, 2))):
            end = start + draw(st.integers(0, 120))
            is_open = draw(st.integers(0, 9)) == 0
            rows.append(
                {
                    **row,
                    "gpus": draw(st.integers(1, 8)),
                    "start": text(start),
                    "end": None if is_open else text(end),
                }
            )
            if is_open:
                break
            start = end
    return rows
