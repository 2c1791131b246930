"""Asking the clusters about a job: the form, the API, and the operation that answers."""

from __future__ import annotations

import pytest

from budgets.models import Operation
from clusters import services as enforcement
from clusters.services import looking
from tests.api.rows import add_cluster
from tests.web.conftest import Visitors

PAGE = "/jobs/look/"
API = "/api/v1/workspaces/acme-vision/looks"
ASKED = {"workspace": "acme-vision", "job": "train"}
SAID = "Hub has no job train in namespace acme-vision."


@pytest.fixture
def _answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read on clusters is tested beside them; here that it reaches who asked."""
    monkeypatch.setattr(looking, "_sentences", lambda namespace, name, names: [SAID])


def ask(visitors: Visitors, role: str) -> Operation:
    found = visitors[role].post(API, {"job": "train"}, content_type="application/json")
    assert found.status_code == 202, found.content
    operation = Operation.objects.get(pk=found.json()["id"])
    assert operation.state == Operation.State.RUNNING
    return operation


@pytest.mark.usefixtures("_answered")
def test_viewer_asks_on_the_page_and_reads_the_answer(visitors: Visitors):
    assert 'value="train"' in visitors.text("viewer", f"{PAGE}?workspace=acme-vision&job=train")
    sent = visitors["viewer"].post(PAGE, ASKED)
    operation = Operation.objects.get()
    assert sent["Location"] == f"/operations/{operation.pk}/"
    enforcement.look_at_job(str(operation.pk))
    text = visitors.text("viewer", sent["Location"])
    assert "Look at the objects of acme-vision/train" in text
    assert SAID in text
    assert visitors["owner"].get(sent["Location"]).status_code == 404


@pytest.mark.usefixtures("_answered")
def test_api_answers_with_an_operation_that_has_the_sentence(visitors: Visitors):
    operation = ask(visitors, "owner")
    enforcement.look_at_job(str(operation.pk))
    told = visitors["owner"].get(f"/api/v1/operations/{operation.pk}").json()
    assert (told["state"], told["message"]) == ("done", SAID)


def test_without_clusters_nothing_is_found_and_the_operation_ends(visitors: Visitors):
    operation = ask(visitors, "owner")
    enforcement.look_at_job(str(operation.pk))
    operation.refresh_from_db()
    assert operation.message.startswith("Nothing on the clusters speaks against this job.")


def test_a_cluster_that_cannot_be_reached_is_told_to_an_owner_without_its_name(
    visitors: Visitors,
):
    add_cluster("hub", role="manager")
    operation = ask(visitors, "owner")
    enforcement.look_at_job(str(operation.pk))
    operation.refresh_from_db()
    assert operation.message == "One cluster could not be asked. Ask again in a while."


def test_stranger_asks_nothing_about_it(visitors: Visitors):
    sent = visitors["stranger"].post(API, {"job": "train"}, content_type="application/json")
    assert sent.status_code == 404
    assert visitors["stranger"].post(PAGE, ASKED).status_code == 422
    assert not Operation.objects.exists()


def test_a_wrong_name_is_a_fault_beside_its_field(visitors: Visitors):
    sent = visitors["owner"].post(PAGE, {**ASKED, "job": "A job"})
    assert sent.status_code == 422
    assert "is not the name of a job" in sent.content.decode()


def test_what_is_said_fits_into_an_operation():
    told = looking._cut(["a" * 300 + ".", "b" * 300 + "."])
    assert told == "a" * 300 + "."
    assert len(looking._cut(["word " * 200])) <= looking.MOST_TEXT
