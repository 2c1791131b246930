"""What-if about nodes on its page, in the API and as a command: a rack added, nodes drained."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError

from budgets import services
from budgets.errors import NotAllowed
from budgets.models import AuditEntry
from clusters.explaining.answers import joined, read_answer
from clusters.explaining.report import answer_lines
from clusters.kueue.cycle.engine import Engine
from clusters.management.commands import what_if
from clusters.models import Cluster, NodeSight, Question
from clusters.reconcile.explained import reporter
from clusters.services import ask_rack, ask_taint
from tests.billing.conftest import active_card
from tests.builders import line
from tests.explained.engines import NOW, answer, engine_of, job
from tests.explained.evidence import EVERYTHING, OWNER
from tests.explained.test_commands import say
from tests.web.conftest import HTMX, Visitors
from tests.web.test_racks import BLOCK, HOST, RACK

pytestmark = pytest.mark.usefixtures("at_one_moment")
PAGE, API = "/what-if/", "/api/v1/what-if"
WHERE = "gpu-east/h100"
GPU = "nvidia.com/gpu"


def racked(*racks: str) -> list[dict[str, Any]]:
    """Nodes of eight H100, each in a rack ``block/rack``; the portal has counted them, too."""
    found = []
    for number, path in enumerate(racks):
        block, _, rack = path.partition("/")
        name = f"n{number}"
        labels = {BLOCK: block, RACK: rack, HOST: name, "gpu": "h100"}
        NodeSight.objects.create(
            cluster="gpu-east", name=name, flavor="h100", labels=labels, gpus=8, used=0
        )
        found.append(
            {
                "kind": "Node",
                "metadata": {"name": name, "labels": labels},
                "status": {
                    "allocatable": {GPU: "8", "cpu": "64", "memory": "512Gi", "pods": "110"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        )
    return found


def wide(name: str, nodes: int, *, namespace: str = "acme-vision") -> dict[str, Any]:
    """A job that fills so many nodes of one rack."""
    document = job(name, namespace, 8)
    document["spec"]["podSets"][0] |= {"count": nodes, "topologyRequest": {"required": RACK}}
    return document


@pytest.fixture
def east(visitors: Visitors) -> Cluster:
    """A worker where the portal decides, and H100 whose nodes stand in racks."""
    fleet = visitors.fleet
    fleet.revise(fleet.vision, line("h100", 32))
    topology = services.create_topology(
        None, slug="racks", name="Racks", levels=[BLOCK, RACK, HOST]
    )
    services.give_topology(None, flavor=fleet.flavors["h100"], topology=topology)
    return cluster()


def cluster(**changed: Any) -> Cluster:
    given = {
        "slug": "gpu-east", "name": "East", "role": "worker", "mode": "portal",
        "server": "https://x", "context": "x", "user_kind": "token", "kubeconfig_sealed": b"x",
    }  # fmt: skip
    return Cluster.objects.create(**given | changed)


def answered(east: Cluster, *documents: dict[str, Any]) -> Engine:
    """Every open question, answered by an engine that knows these nodes and jobs."""
    engine = engine_of(east, *documents)
    for row in Question.objects.filter(answered_at=None):
        answer(engine, row)
    return engine


def ask(visitors: Visitors, role: str = "admin", **body: Any) -> Any:
    return visitors[role].post(API, json.dumps(body), content_type="application/json")


def faults(found: Any) -> dict[str, str]:
    assert found.status_code == 422, found.content
    return {fault["field"]: fault["message"] for fault in found.json()["faults"]}


def test_admin_asks_what_a_rack_would_start(visitors: Visitors, east: Cluster):
    nodes = racked("b0/r0", "b0/r0")
    text = visitors.text("admin", PAGE)
    for offered in (
        "H100 on East: a new block",
        "H100 on East: a new rack in b0",
        "H100 on East: more nodes in b0/r0",
    ):
        assert offered in text
    typed = {"change": "rack", "place": f"{WHERE}/b0", "nodes": 2, "gpus": ""}
    address = visitors["admin"].post(PAGE, typed)["Location"]
    [row] = Question.objects.all()
    assert row.asked["changes"] == [
        {
            "kind": "AddNodes", "flavor": "h100", "count": 2, "resource": GPU, "gpus": 8,
            "within": ["b0"],
        }
    ]  # fmt: skip
    engine = answered(east, *nodes, wide("first", 2), wide("second", 2))
    text = visitors.text("admin", address)
    assert "1 waiting job starts at once. No running job is preempted or stopped." in text
    assert "acme-vision/second" in text
    assert set(engine.state.snapshot.places.nodes) == {"n0", "n1"}
    assert engine.state.workloads["acme-vision/second"].reservation is None


def test_a_rack_with_quota_changes_both_and_says_what_it_costs(visitors: Visitors, east: Cluster):
    fleet = visitors.fleet
    active_card(fleet)
    fleet.revise(fleet.vision, line("h100", 8, 48))
    nodes = racked("b0/r0", "b0/r0")
    typed = {"change": "rack", "place": WHERE, "nodes": 3, "gpus": 8, "receiver": "account:acme"}
    address = visitors["admin"].post(PAGE, typed)["Location"]
    [row] = Question.objects.all()
    kinds = [change["kind"] for change in row.asked["changes"]]
    assert kinds[-1] == "AddNodes" and set(kinds[:-1]) <= {"ClusterQueue", "Cohort"} and kinds[:-1]
    answered(east, *nodes, wide("large", 3))
    text = visitors.text("admin", address)
    assert "acme-vision/large" in text
    assert "gains 24 H100" in text
    assert "Nothing is charged for these GPUs until jobs use them" in text


def test_admin_asks_what_draining_a_rack_would_stop(visitors: Visitors, east: Cluster):
    nodes = racked("b0/r0", "b0/r0", "b0/r1", "b0/r1")
    typed = {"change": "taint", "grounds": f"{WHERE}/b0/r0", "effect": "drain"}
    address = visitors["admin"].post(PAGE, typed)["Location"]
    engine = answered(east, *nodes, wide("first", 2))
    text = visitors.text("admin", address)
    rack = engine.state.snapshot.holding("acme-vision/first")
    assert rack is not None and {use.domain for use in rack.places} == {"n0", "n1"}
    assert "1 running job is stopped. It queues again." in text
    assert "starts again at once" in text
    assert "can no longer start" not in text

    whole = {"change": "taint", "grounds": WHERE, "effect": "drain"}
    address = visitors["admin"].post(PAGE, whole)["Location"]
    answered(east, *nodes, wide("first", 2))
    text = visitors.text("admin", address)
    assert "1 job can no longer start there." in text
    assert "These jobs can no longer start: no domain that is left could take them" in text


def test_admin_asks_about_nodes_by_their_names(visitors: Visitors, east: Cluster):
    nodes = racked("b0/r0", "b0/r0", "b0/r1")
    typed = {
        "change": "taint", "grounds": "gpu-east", "names": "n0\nn1\n", "effect": "cordon",
        "taint": "repair=today",
    }  # fmt: skip
    address = visitors["admin"].post(PAGE, typed)["Location"]
    [row] = Question.objects.all()
    assert row.asked["changes"] == [
        {"kind": "TaintNodes", "taint": "repair=today", "drains": False, "names": ["n0", "n1"]}
    ]
    answered(east, *nodes, wide("first", 2), wide("second", 2))
    text = visitors.text("admin", address)
    assert "No waiting job starts. No running job is preempted or stopped. 1 job can no" in text
    assert "acme-vision/second" in text
    assert "n0\nn1" in text, "what was asked stands in the form"


def test_what_a_rack_opens_is_told_beside_what_it_starts(visitors: Visitors, east: Cluster):
    nodes = racked("b0/r0", "b0/r0")
    found = ask(
        visitors, change="rack", cluster="gpu-east", flavor="h100", nodes=1, within=["b0", "r0"]
    )
    assert found.status_code == 202, found.content
    answered(east, *nodes, wide("first", 2), wide("larger", 3))
    part = found.json()["questions"][0]["id"]
    told = visitors["admin"].get(f"{API}/{part}").json()["answer"]
    assert told["headline"] == "1 job can start later."
    assert [row["name"] for row in told["opened"]] == ["acme-vision/larger"]
    assert (told["opened_count"], told["barred_count"], told["started_count"]) == (1, 0, 0)


def test_asking_about_nodes_leaves_nothing_behind(visitors: Visitors, east: Cluster):
    nodes = racked("b0/r0", "b0/r0")
    entries, sights = AuditEntry.objects.count(), list(NodeSight.objects.values())
    for body in (
        {"change": "rack", "flavor": "h100", "nodes": 5, "account": "acme"},
        {"change": "taint", "flavor": "h100", "drains": True},
    ):
        assert ask(visitors, cluster="gpu-east", **body).status_code == 202
    jobs = (wide("first", 2), wide("second", 2))
    engine, before = answered(east, *nodes, *jobs), engine_of(east, *nodes, *jobs)
    assert engine.state.snapshot.places.nodes == before.state.snapshot.places.nodes
    for name, queue in before.state.snapshot.queues.items():
        after = engine.state.snapshot.queues[name]
        assert after.spec == queue.spec and after.holdings.keys() == queue.holdings.keys()
    assert engine.state.workloads.keys() == before.state.workloads.keys()
    assert Question.objects.filter(answered_at=None).count() == 0
    assert AuditEntry.objects.count() == entries
    assert list(NodeSight.objects.values()) == sights


@pytest.mark.parametrize("change", ["rack", "taint"])
@pytest.mark.parametrize("role", ["owner", "viewer", "finance"])
def test_nodes_are_asked_about_by_admins_alone(
    visitors: Visitors, east: Cluster, role: str, change: str
):
    racked("b0/r0")
    body = {"change": change, "cluster": "gpu-east", "flavor": "h100"}
    more = {"nodes": 1} if change == "rack" else {}
    assert ask(visitors, role, **body, **more).status_code == 403
    assert visitors[role].post(PAGE, {"change": change, "place": WHERE}).status_code == 403
    assert not Question.objects.exists()


def test_the_services_themselves_refuse_who_is_no_admin(visitors: Visitors, east: Cluster):
    racked("b0/r0")
    owner, h100 = visitors.fleet.owner, visitors.fleet.flavors["h100"]
    with pytest.raises(NotAllowed, match="Only a platform admin can ask about nodes"):
        ask_rack(owner, cluster=east, flavor=h100, nodes=1)
    with pytest.raises(NotAllowed, match="Only a platform admin can ask about nodes"):
        ask_taint(owner, cluster=east, names=["n0"])
    assert not Question.objects.exists()


def test_everything_that_is_wrong_with_a_rack_is_said_at_once(visitors: Visitors, east: Cluster):
    racked("b0/r0", "b1/r1", "b2/r2", "b3/r3")
    services.create_pool(None, slug="shared", name="Shared")
    found = faults(
        ask(
            visitors, change="rack", cluster="gpu-east", flavor="h100", nodes=1001, gpus=0,
            within=["b9"], account="acme", pool="shared",
        )
    )  # fmt: skip
    assert found == {
        "within": "East has no block b9 with nodes of H100. Name b0, b1, b2 or one of 1 more, or "
        "leave it out.",
        "nodes": "1001 is no number of nodes from 1 to 1,000. Type one.",
        "gpus": "0 is no number of GPUs of one node from 1 to 1,000. Type one.",
        "receiver": "Name an account or a platform pool that gets the GPUs, not both.",
    }
    many = faults(
        ask(visitors, change="rack", cluster="gpu-east", flavor="h100", nodes=1000, gpus=1000)
    )
    assert many == {"nodes": "1,000 × 1,000 GPUs are more than 100,000. Ask about fewer nodes."}
    assert not Question.objects.exists()


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param({}, {"names": "Name nodes, or a flavor"}, id="nothing named"),
        pytest.param(
            {"names": ["n0"], "flavor": "h100"}, {"names": "not both"}, id="names and a flavor"
        ),
        pytest.param({"within": ["b0"]}, {"flavor": "whose domain"}, id="a domain of nobody"),
        pytest.param(
            {"names": ["n0", "x1", "x2", "x3", "x4"], "taint": "no taint!"},
            {"names": "no node x1, x2, x3 and 1 more of a flavor", "taint": "'no taint!' is no"},
            id="unknown nodes and no taint",
        ),
        pytest.param(
            {"names": [f"n{n}" for n in range(1001)]}, {"names": "more than 1,000"}, id="too many"
        ),
        pytest.param(
            {"flavor": "h100", "within": ["b0", "r0", "n0"]},
            {"within": "b0/r0/n0 has 3 parts, and the nodes of H100 stand in 2 levels: block,"},
            id="too deep",
        ),
        pytest.param({"flavor": "a100"}, {"flavor": "A100 has no topology"}, id="no topology"),
        pytest.param(
            {"flavor": "h100", "nodes": 3},
            {"nodes": "taint has no such field"},
            id="a rack's field",
        ),
    ],
)
def test_what_is_wrong_with_tainted_nodes_is_said(
    visitors: Visitors, east: Cluster, body: dict[str, Any], want: dict[str, str]
):
    racked("b0/r0")
    found = faults(ask(visitors, change="taint", cluster="gpu-east", **body))
    assert found.keys() == want.keys()
    for field, words in want.items():
        assert words in found[field]
    assert not Question.objects.exists()


def test_where_kueue_decides_nobody_knows_the_nodes(visitors: Visitors, east: Cluster):
    racked("b0/r0")
    Cluster.objects.update(mode="kueue")
    text = visitors.text("admin", PAGE)
    assert "Add a rack" not in text and "Taint or drain nodes" not in text
    assert "Drain a worker" in text
    found = faults(ask(visitors, change="rack", cluster="gpu-east", flavor="h100", nodes=1))
    assert "On East Kueue decides" in found["cluster"]
    assert "What if" not in visitors.text("admin", "/fleet/racks/")


def test_an_engine_that_was_told_of_no_nodes_says_so(visitors: Visitors, east: Cluster):
    racked("b0/r0")
    found = ask(visitors, change="taint", cluster="gpu-east", names=["n0"])
    [row] = Question.objects.all()
    _, problem = reporter.answer(engine_of(east), row, now=NOW)
    assert problem == (
        "No flavor with a topology has a node n0 on this cluster. Name nodes as the cluster does."
    )
    _, problem = reporter.answer(Engine(), row, now=NOW)
    assert problem.startswith("Of this cluster no node is known to what decides there")
    assert found.status_code == 202


def test_racks_lead_to_the_questions(visitors: Visitors, east: Cluster):
    racked("b0/r0")
    text = visitors.text("admin", "/fleet/racks/?flavor=h100&cluster=gpu-east&in=b0")
    assert "?change=rack&amp;place=gpu-east%2Fh100%2Fb0" in text
    assert "grounds=gpu-east%2Fh100%2Fb0%2Fr0&amp;effect=drain" in text
    inside = visitors.text("admin", "/fleet/racks/?flavor=h100&cluster=gpu-east&in=b0&in=r0")
    assert "What if it is drained" not in inside
    assert "What if" not in visitors.text("auditor", "/fleet/racks/")
    form = visitors.text("admin", f"{PAGE}?change=taint&grounds=gpu-east/h100/b0/r0&effect=drain")
    assert '<option value="gpu-east/h100/b0/r0" selected>H100 on East: rack b0/r0' in form


def test_wrong_figures_are_said_beside_the_fields_of_the_page(visitors: Visitors, east: Cluster):
    racked("b0/r0")
    typed = {"change": "rack", "place": WHERE, "nodes": 0, "gpus": 2000}
    found = visitors["admin"].post(PAGE, typed, **HTMX)
    assert found.status_code == 422
    text = found.content.decode()
    assert "0 is no number of nodes" in text and "2000 is no number of GPUs" in text
    named = {"change": "taint", "grounds": "gpu-east", "effect": "cordon"}
    assert "Name nodes, or a flavor" in visitors["admin"].post(PAGE, named, **HTMX).content.decode()


@pytest.fixture
def shifts(monkeypatch: pytest.MonkeyPatch, east: Cluster) -> None:
    """While the command waits, open questions are answered as the cluster's shift would."""
    nodes = racked("b0/r0", "b0/r0")

    def work(seconds: float) -> None:
        answered(east, *nodes, wide("first", 2), wide("second", 2))

    monkeypatch.setattr(what_if, "time", SimpleNamespace(sleep=work))


def test_a_command_asks_about_a_rack(shifts: None):
    text = say("what_if", "rack", "gpu-east", "--flavor", "h100", "--nodes", "2", "--in", "b0")
    assert text.startswith("gpu-east:\n  1 job starts.\n")
    assert "acme-vision/second" in text


def test_a_command_asks_about_nodes_that_are_drained(shifts: None):
    text = say("what_if", "taint", "gpu-east", "--node", "n0", "--node", "n1", "--drain")
    assert "1 job is stopped and 2 jobs can no longer start." in text
    assert "can no longer start: no domain can take them" in text
    whole = say("what_if", "taint", "gpu-east", "--flavor", "h100", "--in", "b0", "--in", "r0")
    assert "1 job can no longer start." in whole
    with pytest.raises(CommandError, match="has no node n9"):
        say("what_if", "taint", "gpu-east", "--node", "n9")
    with pytest.raises(CommandError, match="no flavor 'b200'"):
        say("what_if", "rack", "gpu-east", "--flavor", "b200", "--nodes", "2")


def test_what_is_barred_of_others_is_not_told_by_name():
    document = {
        "barred": [
            {"key": "acme-vision/own", "clusterQueue": "acme-vision"},
            {"key": "globex-search/secret", "clusterQueue": "globex-search"},
            {"key": "acme-speech/near", "clusterQueue": "acme-speech"},
        ],
        "barredCount": 3,
        "opened": [],
        "openedCount": 0,
    }
    found = read_answer(document, OWNER)
    assert [row.name for row in found.barred] == [
        "acme-vision/own",
        "jobs of another workspace of Acme",
    ]
    assert found.barred_count == 1
    assert found.headline == "1 job can no longer start."
    assert read_answer(document, EVERYTHING).barred_count == 3
    assert joined([found, found]).barred_count == 1
    lines = "\n".join(answer_lines(found))
    assert "globex" not in lines and "secret" not in lines and "near" not in lines


@pytest.mark.parametrize("typed", [{"nodes": "9" * 2_200}, {"gpus": "9" * 2_200}])
def test_an_address_of_a_rack_that_nobody_builds_has_its_verdict_alone(
    visitors: Visitors, east: Cluster, typed: dict[str, str]
):
    active_card(visitors.fleet)
    racked("b0/r0")
    rack = {
        "change": "rack", "place": WHERE, "nodes": "2", "gpus": "8", "receiver": "account:acme",
    }  # fmt: skip
    asked = visitors["admin"].post(PAGE, rack)["Location"].rpartition("q=")[2]
    answered(east)
    assert "Nothing is charged" in visitors.text("admin", PAGE, data={**rack, "q": asked})
    told = visitors.text("admin", PAGE, data={**rack, **typed, "q": asked})
    assert "Nothing is charged" not in told
    refused = visitors["admin"].post(PAGE, rack | typed)
    assert refused.status_code == 422
    assert "from -1,000,000,000 to 1,000,000,000" in refused.content.decode()
    most = {"nodes": 10**9, "gpus": 10**9}
    assert "Nothing is charged" in visitors.text("admin", PAGE, data={**rack, **most, "q": asked})
