"""Questions: what may be asked, and what becomes of one."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from budgets.errors import Rejected
from clusters.models import Cluster, Question
from clusters.services import questions
from clusters.services.questions import ReplyState, answer_of, ask_what_if
from tests.builders import SmallFleet
from tests.reconcile.fleet_rows import register

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("at_one_moment")]
DRAIN = {"kind": "Drain"}


@pytest.fixture
def cluster(fleet: SmallFleet) -> Cluster:
    return register("gpu-east", "{}")


def test_question_waits_then_tells_that_nobody_answers(cluster, fleet):
    question = ask_what_if(cluster, [DRAIN], fleet.admin)
    assert answer_of(question).state is ReplyState.WAITING
    Question.objects.update(created_at=timezone.now() - timedelta(seconds=6))
    reply = answer_of(question)
    assert reply.state is ReplyState.SILENT
    assert reply.problem.startswith("Nothing answers for Gpu-East")


def test_answer_counts_even_when_it_comes_late(cluster):
    question = ask_what_if(cluster, [DRAIN], None)
    past = timezone.now() - timedelta(minutes=1)
    Question.objects.update(created_at=past, answered_at=timezone.now(), answer={"pending": 0})
    reply = answer_of(question)
    assert (reply.state, reply.answer) == (ReplyState.ANSWERED, {"pending": 0})


def test_refusal_is_told_in_a_sentence(cluster):
    question = ask_what_if(cluster, [DRAIN], None)
    Question.objects.update(answered_at=timezone.now(), problem="There is no Cohort x here.")
    assert answer_of(question).problem == "There is no Cohort x here."


def test_everything_that_is_wrong_is_named_at_once(cluster):
    with pytest.raises(Rejected) as caught:
        ask_what_if(cluster, [DRAIN, {"kind": "Pod"}, {"kind": "Cohort"}], None)
    assert [fault.field for fault in caught.value.faults] == ["changes.1", "changes.2"]
    assert not Question.objects.exists()


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param([], "empty", id="nothing"),
        pytest.param([DRAIN] * (questions.MOST_CHANGES + 1), "too_large", id="too many"),
    ],
)
def test_too_little_and_too_much_is_refused(cluster, changes, want):
    with pytest.raises(Rejected) as caught:
        ask_what_if(cluster, changes, None)
    assert [fault.code for fault in caught.value.faults] == [want]


def test_removed_cluster_is_not_asked(cluster):
    cluster.state = Cluster.State.REMOVED
    with pytest.raises(Rejected, match="no longer registered"):
        ask_what_if(cluster, [DRAIN], None)


def test_crowd_of_open_questions_is_held_off(cluster):
    for _ in range(questions.MOST_OPEN):
        ask_what_if(cluster, [DRAIN], None)
    with pytest.raises(Rejected, match="Try again in a moment"):
        ask_what_if(cluster, [DRAIN], None)


def test_old_questions_are_forgotten_with_the_next_one(cluster):
    old = ask_what_if(cluster, [DRAIN], None)
    Question.objects.update(created_at=timezone.now() - timedelta(hours=25))
    ask_what_if(cluster, [DRAIN], None)
    assert Question.objects.count() == 1
    assert answer_of(old).state is ReplyState.REFUSED


def test_one_person_does_not_take_the_turns_of_all_others(cluster, fleet):
    for _ in range(questions.MOST_OPEN_EACH):
        ask_what_if(cluster, [DRAIN], fleet.owner)
    with pytest.raises(Rejected, match="5 of your questions already wait for Gpu-East"):
        ask_what_if(cluster, [DRAIN], fleet.owner)
    ask_what_if(cluster, [DRAIN], fleet.admin)
    Question.objects.filter(asked_by=fleet.owner).update(answered_at=timezone.now())
    ask_what_if(cluster, [DRAIN], fleet.owner)
