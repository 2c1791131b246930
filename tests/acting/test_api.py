"""The API of actions on jobs and of windows of maintenance, by role."""

from __future__ import annotations

from datetime import timedelta

import pytest

from budgets.selectors import utc_now
from clusters.models import Cluster, MaintenanceWindow, WorkloadAction
from tests.acting.conftest import seen
from tests.api.conftest import People, people
from tests.builders import line
from tests.reconcile.fleet_rows import register

__all__ = ["people"]  # a fixture
pytestmark = pytest.mark.django_db
WISH = {"verb": "deactivate", "reason": "wrong data"}


@pytest.fixture
def east(people: People) -> Cluster:
    return register("gpu-east", "kubeconfig")


def window(**changes) -> dict:
    ends = utc_now() + timedelta(hours=4)
    return {
        "cluster": "gpu-east",
        "ends_at": f"{ends:%Y-%m-%dT%H:%M:%SZ}",
        "reason": "new cooling",
        **changes,
    }


@pytest.mark.parametrize(
    ("role", "code"),
    [
        ("admin", 202),
        ("owner", 202),
        ("account_owner", 202),
        ("viewer", 403),
        ("finance", 403),
        ("stranger", 404),
        ("nobody", 404),
        ("anonymous", 401),
    ],
)
def test_who_may_act_on_a_job(people: People, east: Cluster, role: str, code: int) -> None:
    state = seen(east, "train")
    address = f"workloads/gpu-east/{state.uid}/actions"
    answer = people.send(role, "POST", address, WISH)
    assert answer.status_code == code
    assert WorkloadAction.objects.count() == (code == 202)
    several = {**WISH, "jobs": [{"cluster": "gpu-east", "uid": state.uid}]}
    want = {202: 422, 404: 422}.get(code, code)  # asked for already; no such job
    assert people.send(role, "POST", "workload-actions", several).status_code == want
    if code != 202:
        return
    (shown,) = people.send("viewer", "GET", address).json()["actions"]
    assert (shown["verb"], shown["state"], shown["reason"]) == (
        *("deactivate", "waiting", "wrong data"),
    )
    back = f"workload-actions/{shown['id']}/withdraw"
    assert people.send("viewer", "POST", back).status_code == 403
    assert people.send("stranger", "POST", back).status_code == 404
    assert people.send(role, "POST", back).json()["state"] == "withdrawn"
    assert people.send(role, "POST", back).status_code == 422


def test_many_jobs_are_asked_for_at_once(people: People, east: Cluster) -> None:
    states = [seen(east, name) for name in ("one", "two")]
    jobs = [{"cluster": "gpu-east", "uid": state.uid} for state in states]
    answer = people.send("owner", "POST", "workload-actions", {**WISH, "jobs": jobs})
    assert [row["uid"] for row in answer.json()["actions"]] == [state.uid for state in states]
    for wrong in ({"verb": "restart"}, {"reason": ""}, {"jobs": []}, {"other": 1}):
        body = {**WISH, "jobs": jobs, **wrong}
        assert people.send("owner", "POST", "workload-actions", body).status_code == 422


def test_windows_are_planned_previewed_and_ended_by_admins(people: People, east: Cluster) -> None:
    people.fleet.revise(people.fleet.vision, line("h100", 48))
    place = {key: value for key, value in window().items() if key != "reason"}
    for role, code in (("owner", 403), ("finance", 403), ("anonymous", 401)):
        assert people.send(role, "POST", "maintenance", window()).status_code == code
        assert people.send(role, "POST", "maintenance/preview", place).status_code == code
    preview = people.send("admin", "POST", "maintenance/preview", place).json()
    (row,) = preview["rows"]
    assert (row["workspace"], row["committed"]) == ("acme-vision", 48)
    assert preview["gpu_seconds"] == row["gpu_seconds"] > 0
    assert not MaintenanceWindow.objects.exists()
    made = people.send("admin", "POST", "maintenance", window(drains=True))
    assert made.status_code == 201
    shown = made.json()
    assert (shown["cluster"], shown["flavor"], shown["drains"]) == ("gpu-east", None, True)
    assert shown["state"] == "active"
    address = f"maintenance/{shown['id']}"
    own = people.send("owner", "GET", address).json()
    assert [floor["workspace"] for floor in own["floors"]] == ["acme-vision"]
    assert people.send("owner", "GET", "maintenance").json()["results"] == [own]
    assert people.send("stranger", "GET", address).status_code == 404
    assert people.send("stranger", "GET", "maintenance").json()["results"] == []
    end = f"{address}/end"
    assert people.send("owner", "POST", end, {"reason": "x"}).status_code == 403
    assert people.send("stranger", "POST", end, {"reason": "x"}).status_code == 404
    assert people.send("admin", "POST", end, {}).status_code == 422
    assert people.send("admin", "POST", end, {"reason": "x"}).json()["state"] == "over"
    assert people.send("admin", "POST", end, {"reason": "x"}).status_code == 422


def test_every_fault_of_a_window_is_told(people: People, east: Cluster) -> None:
    wrong = window(cluster=None, ends_at="2020-01-01T00:00:00Z", reason="x")
    answer = people.send("admin", "POST", "maintenance", wrong)
    assert answer.status_code == 422
    assert {fault["field"] for fault in answer.json()["faults"]} == {"cluster", "ends_at"}
    unknown = people.send("admin", "POST", "maintenance", window(cluster="mars"))
    assert unknown.status_code == 422
