"""Whatever people do in whatever order, what stands on the clusters is what is promised."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
import time_machine

from budgets import selectors, services
from budgets.errors import Rejected
from budgets.models import Budget, BudgetRevision
from budgets.plan import Promises, changed_subjects
from tests.builders import SmallFleet, hours, line

pytestmark = pytest.mark.django_db

FLAVORS = ("h100", "h100-spot", "l4")


def generations(promises: Promises) -> dict[str, int]:
    return {
        **{f"flavor:{flavor.name}": flavor.generation for flavor in promises.flavors},
        **{f"account:{account.name}": account.generation for account in promises.accounts},
        **{f"pool:{pool.name}": pool.generation for pool in promises.pools},
        **{f"budget:{w.namespace}": w.generation for w in promises.workspaces},
    }


def assert_stands_as_promised(promises: Promises) -> None:
    for workspace in promises.workspaces:
        for entry in workspace.lines:
            parts = [part for (f, _), part in workspace.split.items() if f == entry.flavor]
            assert sum(committed for committed, _ in parts) == entry.committed
            assert sum(lendable for _, lendable in parts) == entry.lendable
            assert all(lendable <= committed for committed, lendable in parts)
    for amounts, split in [
        *((account.pool, account.pool_split) for account in promises.accounts),
        *((pool.amounts, pool.split) for pool in promises.pools),
    ]:
        for flavor, gpus in amounts.items():
            assert sum(part for (f, _), part in split.items() if f == flavor) == gpus


def assert_generations_followed(before: Promises, after: Promises) -> None:
    old, new = generations(before), generations(after)
    risen = {subject for subject in old.keys() & new.keys() if new[subject] > old[subject]}
    assert risen == changed_subjects(before, after) & old.keys() & new.keys()


@pytest.mark.parametrize("seed", range(4))
def test_random_histories_keep_the_laws(fleet: SmallFleet, seed: int):
    chance = random.Random(seed)
    pools = [
        services.create_pool(None, slug="acme-pool", name="Own", account=fleet.acme),
        services.create_pool(None, slug="shared", name="Shared"),
    ]
    with time_machine.travel(hours(0), tick=False) as clock:

        def revise() -> None:
            lines = [
                line(flavor, committed, committed + chance.choice((0, 8, 20)))
                for flavor in chance.sample(FLAVORS, chance.randint(0, 3))
                for committed in [chance.choice((0, 4, 8, 12, 16, 24))]
            ]
            start = selectors.utc_now() + timedelta(hours=chance.choice((0, 0, 3)))
            fleet.revise(
                chance.choice((fleet.vision, fleet.speech, fleet.search)),
                *lines,
                actor=chance.choice((fleet.admin, fleet.finance)),
                valid_from=start,
                valid_until=chance.choice((None, start + timedelta(hours=4))),
            )

        def pool() -> None:
            services.set_pool_amount(
                fleet.admin,
                pool=chance.choice(pools),
                flavor=fleet.flavors[chance.choice(FLAVORS)],
                gpus=chance.choice((0, 4, 8)),
            )

        def share() -> None:
            services.set_pool_share(
                fleet.admin,
                pool=pools[1],
                account=chance.choice((fleet.acme, fleet.globex)),
                limits=chance.choice(({}, {"h100": 4})),
            )

        def decide() -> None:
            waiting = BudgetRevision.objects.filter(state="requested").first()
            if waiting is not None:
                services.decide_request(
                    fleet.admin,
                    revision=waiting,
                    accept=chance.random() < 0.7,
                    reason="dice",
                    expected_version=waiting.budget.version,
                )

        def hold() -> None:
            budget = Budget.objects.get(workspace=fleet.vision)
            policy = chance.choice(("None", "Hold"))
            services.set_stop_policy(fleet.admin, budget=budget, policy=policy, reason="dice")

        def wait() -> None:
            clock.move_to(selectors.utc_now() + timedelta(hours=1), tick=False)

        for _ in range(25):
            before = selectors.promises_in_force()
            try:
                chance.choice((revise, revise, revise, pool, share, decide, hold, wait))()
            except Rejected as refused:
                assert refused.faults
                assert selectors.promises_in_force() == before, "nothing is half-saved"
            middle = selectors.promises_in_force()
            assert_generations_followed(before, middle)
            services.advance_in_force()
            after = selectors.promises_in_force()
            assert_generations_followed(middle, after)
            assert_stands_as_promised(after)
            assert all(
                total.excess == 0 for total in selectors.fleet_grid(fleet.admin).totals.values()
            )
