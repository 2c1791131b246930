"""Gives a fresh portal what a fault run needs: ``tests.faults.furnish FOLDER GPUS MODE FLOOR``.

Two people of finance, one workspace with a floor and a burst, prices, some months to close,
and three registered clusters whose kubeconfigs lie in the folder. By the services, as pages do.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import django

ACCOUNT, SLUG = "acme", "vision"
FLAVOR = "h100"
MONTHS = 6


def furnish(folder: Path, *, gpus: int, mode: str, floor: int) -> None:
    """Everything, in a database that has its tables and nothing else.

    Args:
        folder: Of ``CLUSTER.kubeconfig``.
        gpus: Of the flavor on each worker; those of all workers are the ceiling.
        mode: Of every cluster.
        floor: GPUs that are committed; as many as a worker has stand on one worker.
    """
    # Models can be imported only once Django is set up.
    from django.db import connection

    from budgets import services
    from budgets.models import Role
    from budgets.plan import RevisionDraft, short_form_lines
    from budgets.services import billing
    from clusters import services as cluster_services

    begin = (services.utc_now() - timedelta(days=31 * MONTHS)).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    names = sorted(path.stem for path in folder.glob("*.kubeconfig"))
    workers = [name for name in names if name != "manager"]

    def person(name: str) -> dict[str, str]:
        return {"username": name, "email": f"{name}@example.com", "password": f"run-{name}-word"}

    admin = services.create_first_admin(**person("admin"))
    finance = [services.create_user(admin, **person(name)) for name in ("fin", "fay")]
    for one in finance:
        # By the portal itself: what an admin gives waits a day before it approves.
        services.grant_role(None, user=one, role=Role.FINANCE)
    flavor = services.create_flavor(
        admin, slug=FLAVOR, name="H100", node_labels={"gpu": FLAVOR}, gpus_per_node=gpus
    )
    account = services.create_account(admin, slug=ACCOUNT, name="Acme")
    total = gpus * len(workers)
    services.set_envelope(
        admin, account=account, flavor=flavor, committed=floor, ceiling=total, pool=total - floor
    )
    workspace = services.create_workspace(
        admin, account=account, slug=SLUG, name="Vision", home_flavor=flavor
    )
    for name in workers:
        services.set_capacity(
            None, cluster=name, flavor=flavor, gpus=gpus, valid_from=begin, reason="Nodes"
        )
    card = billing.propose_rate_card(
        finance[0],
        name="List",
        currency="EUR",
        prices=[billing.PriceDraft(FLAVOR, "2.10", "3.40", "0.5")],
        reason="Agreed",
    )
    waits = billing.propose_activation(finance[0], card=card, valid_from=begin)
    billing.decide_proposal(finance[1], proposal=waits, is_approved=True)

    def register(name: str) -> None:
        try:
            cluster_services.register_cluster(
                admin,
                slug=name,
                name=name,
                role="worker" if name in workers else "manager",
                mode=mode,
                kubeconfig=(folder / f"{name}.kubeconfig").read_text(),
            )
        finally:
            connection.close()

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(register, names))
    lines = short_form_lines(home_flavor=FLAVOR, committed=floor, ceiling=total, preferred=None)
    services.revise_budget(
        None,  # the portal itself: it begins in the past
        workspace=workspace,
        draft=RevisionDraft(lines=lines, valid_from=begin, reason="Agreed"),
        expected_version=workspace.budget.version,
    )


if __name__ == "__main__":
    django.setup()
    furnish(Path(sys.argv[1]), gpus=int(sys.argv[2]), mode=sys.argv[3], floor=int(sys.argv[4]))
