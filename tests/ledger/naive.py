"""The same rules again, second by second and with no sweep: slow, obvious, and independent.

It reads the JSON format itself and shares no code with the meter. ``work_out`` returns the
shape of ``expect``.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from fractions import Fraction

DIGITS = {"USD": 2, "EUR": 2, "JPY": 0, "KWD": 3}


def seconds(text):
    return int(datetime.fromisoformat(text).timestamp())


def hour_text(second):
    return datetime.fromtimestamp(second - second % 3600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def newest(rows, second):
    """The last of the rows that began at or before a second; of equal ones the later row."""
    begun = [row for row in rows if seconds(row["from"]) <= second]
    best = None
    for row in begun:
        if best is None or seconds(row["from"]) >= seconds(best["from"]):
            best = row
    return best


def floor_of(ledger, workspace, flavor, second):
    row = newest([r for r in ledger["revisions"] if r["workspace"] == workspace], second)
    for line in (row or {"lines": []})["lines"]:
        if line["flavor"] == flavor:
            return line["committed"], line["lendable"]
    return 0, 0


def running(ledger, workspace, flavor, second):
    """Intervals that hold GPUs in that second, in the order of the waterfall."""
    rows = [
        row
        for row in ledger["intervals"]
        if row["workspace"] == workspace
        and row["flavor"] == flavor
        and seconds(row["start"]) <= second
        and (row["end"] is None or second < seconds(row["end"]))
    ]
    return sorted(rows, key=lambda row: (seconds(row["admitted"]), row["uid"]))


def largest_remainder(shares):
    total = sum(shares)
    whole = [int(share) for share in shares]
    order = sorted(range(len(shares)), key=lambda i: (-(shares[i] - whole[i]), i))
    for i in order[: int(total) - sum(whole)]:
        whole[i] += 1
    return whole


def decimal_text(exact, digits):
    scaled = round(exact * 10**digits)
    sign, text = ("-" if scaled < 0 else ""), str(abs(scaled)).rjust(digits + 1, "0")
    return sign + (f"{text[:-digits]}.{text[-digits:]}" if digits else text)


def flavors_of(ledger):
    named = {line["flavor"] for row in ledger["revisions"] for line in row["lines"]}
    return sorted(named | {row["flavor"] for row in ledger["intervals"]})


def work_out(ledger):
    hours = defaultdict(lambda: defaultdict(Fraction))
    accounts = defaultdict(lambda: defaultdict(Fraction))
    lent_shares = defaultdict(Fraction)
    workloads = defaultdict(lambda: [0, 0])
    names = sorted(row["name"] for row in ledger["workspaces"])
    account_of = {row["name"]: row["account"] for row in ledger["workspaces"]}
    for second in range(seconds(ledger["period"]["start"]), seconds(ledger["period"]["end"])):
        hour = hour_text(second)
        for flavor in flavors_of(ledger):
            over, lendable, left = defaultdict(int), {}, {}
            for name in names:
                committed, limit = floor_of(ledger, name, flavor, second)
                rest, used = committed, 0
                for row in running(ledger, name, flavor, second):
                    taken = min(rest, row["gpus"])
                    rest -= taken
                    used += row["gpus"]
                    workloads[row["uid"]][0] += taken
                    workloads[row["uid"]][1] += row["gpus"] - taken
                fact = hours[hour, name, flavor]
                fact["committed"] += committed
                fact["committed_used"] += min(used, committed)
                fact["burst"] += max(0, used - committed)
                over[account_of[name]] += max(0, used - committed)
                lendable[name] = rest if limit is None else min(rest, limit)
            for account in ledger["accounts"]:
                name, cover = account["name"], accounts[hour, account["name"], flavor]
                pool = min(over[name], account["shared_pool"].get(flavor, 0))
                lenders = {ws: lendable[ws] for ws in names if account_of[ws] == name}
                covered = min(over[name] - pool, sum(lenders.values()))
                for ws, amount in lenders.items():
                    if covered:
                        share = Fraction(covered * amount, sum(lenders.values()))
                        lent_shares[hour, ws, flavor] += share
                cover["burst"] += over[name]
                cover["pool"] += pool
                left[name] = over[name] - pool - covered
                cover["left"] += left[name]
            for shared in ledger["platform_pools"]:
                lacking = sum(left[name] for name in shared["accounts"])
                for name in shared["accounts"]:
                    if lacking:
                        given = min(lacking, shared["gpus"].get(flavor, 0))
                        share = Fraction(given * left[name], lacking)
                        accounts[hour, name, flavor]["platform"] += share
    return _texts(ledger, names, account_of, hours, accounts, lent_shares, workloads)


def _texts(ledger, names, account_of, hours, accounts, lent_shares, workloads):
    lent, account_rows = {}, []
    for (hour, account, flavor), cover in accounts.items():
        if not cover["burst"]:
            continue
        own = [ws for ws in names if account_of[ws] == account]
        shares = [lent_shares[hour, ws, flavor] for ws in own]
        rest = cover["left"] - cover["platform"]
        pool, *lenders, platform, uncovered = largest_remainder(
            [cover["pool"], *shares, cover["platform"], rest]
        )
        lent.update({(hour, ws, flavor): n for ws, n in zip(own, lenders, strict=True)})
        account_rows.append(
            {
                "hour": hour,
                "account": account,
                "flavor": flavor,
                "burst": int(cover["burst"]),
                "from_pool": pool,
                "borrowed": sum(lenders),
                "from_platform": platform,
                "uncovered": uncovered,
            }
        )
    hour_rows = [
        {
            "hour": hour,
            "workspace": ws,
            "flavor": flavor,
            "committed": int(fact["committed"]),
            "committed_used": int(fact["committed_used"]),
            "lent": lent.get((hour, ws, flavor), 0),
            "idle": int(fact["committed"] - fact["committed_used"])
            - lent.get((hour, ws, flavor), 0),
            "burst": int(fact["burst"]),
        }
        for (hour, ws, flavor), fact in hours.items()
        if fact["committed"] or fact["burst"]
    ]
    return {
        "hours": hour_rows,
        "accounts": account_rows,
        "workloads": [
            {"uid": uid, "committed": row[0], "burst": row[1]} for uid, row in workloads.items()
        ],
        **_charges(ledger, names, hour_rows),
    }


def _charges(ledger, names, hour_rows):
    digits = DIGITS[ledger["currency"]]
    exact, amounts = defaultdict(Fraction), defaultdict(int)
    for fact in hour_rows:
        rates = [row for row in ledger["rates"] if row["flavor"] == fact["flavor"]]
        rate = newest(rates, seconds(fact["hour"]))
        floor, burst, credit = (
            Fraction(rate[key]) if rate else Fraction(0)
            for key in ("committed", "burst", "lending_credit")
        )
        for kind, quantity, price in (
            ("floor", fact["committed"], floor),
            ("burst", fact["burst"], burst),
            ("lending_credit", fact["lent"], -floor * credit),
        ):
            key = (fact["workspace"], fact["flavor"], kind)
            amounts[key] += quantity
            exact[key] += quantity * price / 3600
    lines = [
        {
            "workspace": key[0],
            "flavor": key[1],
            "kind": key[2],
            "gpu_seconds": quantity,
            "amount": decimal_text(exact[key], digits),
        }
        for key, quantity in amounts.items()
        if quantity
    ]
    totals = []
    for name in names:
        payable = round(sum(e for key, e in exact.items() if key[0] == name) * 10**digits)
        rounded = sum(round(e * 10**digits) for key, e in exact.items() if key[0] == name)
        totals.append(
            {
                "workspace": name,
                "rounding": decimal_text(Fraction(payable - rounded, 10**digits), digits),
                "payable": decimal_text(Fraction(payable, 10**digits), digits),
            }
        )
    funding = -sum((e for key, e in exact.items() if key[2] == "lending_credit"), Fraction(0))
    return {
        "lines": lines,
        "totals": totals,
        "platform_funding": decimal_text(funding, digits),
    }
