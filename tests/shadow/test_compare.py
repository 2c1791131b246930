"""Where Kueue and the engine differ is found; what is only a matter of timing is not."""

from __future__ import annotations

import pytest

from clusters.reconcile.shadow.compare import Kind
from clusters.reconcile.shadow.events import Fate
from tests.kueue.builders import (
    GPU,
    cluster_queue,
    cohort,
    flavor,
    group,
    pod_set,
    preemption,
    quota,
    reserved,
    workload,
)
from tests.kueue.test_devices import H100, MAPPED, by_template, exactly
from tests.kueue.test_devices import template as claim_template
from tests.shadow.story import Story, evicted, finished, released, stamp, waiting

LACKING = (
    "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in "
    "flavor f0, {} more needed"
)


def queue(name: str = "q", gpus: int = 8, **spec):
    return cluster_queue(name, group(f0=quota(gpus)), **spec)


def test_same_decisions_are_counted_and_nothing_else():
    story = Story(queue()).rest()
    first, second = workload("first", "q", gpus=8), workload("second", "q", gpus=4, age=1)
    story.tell(first)
    story.admit(first, "q")
    story.tell(second, waiting(second, "WaitingForQuota", LACKING.format(4))).rest()
    assert (story.compared, story.passed_over, story.differences) == (2, 0, [])


def test_admission_beyond_quota_is_a_difference_with_both_sides():
    story = Story(queue(), reserved(workload("first", "q", gpus=8), "q")).rest()
    second = workload("second", "q", gpus=4, age=1)
    story.tell(second)
    story.admit(second, "q")
    [found] = story.rest().differences
    assert (found.key, found.kind) == ("ns/second", Kind.ADMISSION)
    assert found.portal_says.document() == {
        "decision": "pending",
        "clusterQueue": "q",
        "reason": "WaitingForQuota",
        "message": LACKING.format(4),
    }
    assert found.kueue_did.document() == {
        "decision": "admitted",
        "clusterQueue": "q",
        "flavors": {"main": {GPU: "f0"}},
    }


def test_other_flavor_is_a_difference():
    two = cluster_queue("q", group(f0=quota(8), f1=quota(8)))
    story = Story(flavor("f1"), two).rest()
    document = workload("w", "q", gpus=4)
    story.tell(document)
    story.admit(document, "q", flavor="f1")
    [found] = story.rest().differences
    assert found.portal_says.flavors == {"main": {GPU: "f0"}}
    assert found.kueue_did.flavors == {"main": {GPU: "f1"}}


def test_workload_that_is_left_waiting_is_a_difference_only_when_it_stays_so():
    story = Story(queue()).rest()
    document = workload("w", "q", gpus=4)
    story.tell(document).rest(10)
    assert story.differences == []
    [found] = story.rest(10).differences
    assert found.portal_says.decision is Fate.ADMITTED
    assert found.kueue_did.decision is Fate.PENDING


def test_late_admission_is_none():
    story = Story(queue()).rest()
    document = workload("w", "q", gpus=4)
    story.tell(document).rest(10)
    story.admit(document, "q")
    assert story.rest().differences == []
    assert story.compared == 1


def test_workload_that_waits_from_the_beginning_though_it_fits_is_found():
    story = Story(queue(), workload("w", "q", gpus=4)).rest()
    assert [item.key for item in story.differences] == ["ns/w"]


def test_quota_that_is_told_after_the_admission_that_it_allowed_is_no_difference():
    story = Story(queue(gpus=0)).rest()
    document = workload("w", "q", gpus=4)
    story.tell(document)
    story.admit(document, "q")
    story.tell(queue(gpus=8)).rest()
    assert story.differences == []
    assert story.compared == 1


def test_write_that_comes_late_is_no_difference():
    """Kueue took the first before the second, more urgent one was there."""
    story = Story(queue()).rest()
    first = workload("first", "q", gpus=8)
    urgent = workload("urgent", "q", gpus=8, priority=9, age=1)
    story.tell(first, urgent)
    story.admit(first, "q")
    story.tell(waiting(urgent, "WaitingForQuota", LACKING.format(8))).rest()
    assert story.differences == []


def test_jobs_that_come_and_go_between_two_rests_are_compared():
    story = Story(queue()).rest()
    for number in range(3):
        document = workload(f"w{number}", "q", gpus=8, age=number)
        story.tell(document)
        story.tell(finished(story.admit(document, "q")))
    story.rest()
    assert (story.compared, story.differences) == (3, [])


def preempting(within: str):
    return queue(preemption=preemption(within))


def low_and_high():
    low = reserved(workload("low", "q", gpus=8), "q")
    return low, workload("high", "q", gpus=8, priority=5, age=9)


def test_same_preemption_is_no_difference_and_waits_for_the_victim_to_stop():
    low, high = low_and_high()
    story = Story(preempting("LowerPriority"), low).rest()
    message = f"{LACKING.format(8)}. Pending the preemption of 1 workload(s)"
    story.tell(high, evicted(low), waiting(high, "WaitingForPreemptedWorkloads", message)).rest()
    assert story.compared == 0
    story.tell(released(evicted(low)))
    story.admit(high, "q")
    story.rest()
    assert (story.compared, story.differences) == (2, [])


def test_preemption_against_the_rules_is_a_difference():
    low, high = low_and_high()
    story = Story(preempting("Never"), low).rest()
    story.tell(high, evicted(low), released(evicted(low)))
    story.admit(high, "q")
    found = {item.key: item for item in story.rest().differences}
    assert found["ns/low"].kind is Kind.PREEMPTION
    assert found["ns/low"].portal_says.decision is Fate.ADMITTED
    assert found["ns/low"].kueue_did.reason == "InClusterQueue"


def test_preemption_that_does_not_come_is_a_difference():
    low, high = low_and_high()
    story = Story(preempting("LowerPriority"), low).rest()
    story.tell(high, waiting(high, "WaitingForQuota", LACKING.format(8))).rest()
    found = {item.key: item.kind for item in story.differences}
    assert found["ns/low"] is Kind.PREEMPTION


FAIR = {"fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare"]}}


@pytest.mark.parametrize(
    ("believed", "want"),
    [
        pytest.param(None, [], id="as Kueue"),
        pytest.param(FAIR, ["ns/older"], id="fair sharing that is not in force"),
    ],
)
def test_configuration_that_is_not_in_force_is_noticed(believed, want):
    """What becomes free goes to the older one; with fair sharing to the queue that has less."""
    empty = {"f0": quota(0)}
    rich = reserved(workload("rich", "a", gpus=6), "a")
    ends = reserved(workload("ends", "a", gpus=2), "a")
    older, newer = workload("older", "a", gpus=2, age=5), workload("newer", "b", gpus=2, age=9)
    story = Story(
        cohort("pool", f0=quota(8)),
        *(cluster_queue(name, group(**empty), in_cohort="pool") for name in "ab"),
        *(rich, ends, older, newer),
        configuration=believed,
    ).rest()
    story.tell(finished(ends))
    story.admit(older, "a")
    assert [item.key for item in story.rest().differences] == want
    assert story.compared == 1


@pytest.mark.parametrize(
    ("reason", "message", "want"),
    [
        pytest.param("WaitingForQuota", LACKING.format(2), [], id="an older amount"),
        pytest.param(
            "NoMatchingFlavor",
            "couldn't assign flavors to pod set main: flavor f0 not found",
            ["ns/w"],
            id="another reason",
        ),
        pytest.param(
            "WaitingForQuota",
            LACKING.format(4).replace("f0", "f7"),
            ["ns/w"],
            id="another flavor",
        ),
        pytest.param(
            "ExceedsMaxQuota", LACKING.format(4), ["ns/w"], id="another reason for the same"
        ),
        pytest.param("Pending", LACKING.format(4), [], id="without the gate for reasons"),
        pytest.param(
            "Pending",
            LACKING.format(4).replace("f0", "f7"),
            ["ns/w"],
            id="another flavor, without the gate for reasons",
        ),
        pytest.param("Pending", "The workload is deactivated", [], id="something else"),
        pytest.param("Admitted", "by somebody else's controller", [], id="no verdict on quota"),
    ],
)
def test_reason_to_wait(reason, message, want):
    story = Story(queue(), reserved(workload("first", "q", gpus=8), "q")).rest()
    document = workload("w", "q", gpus=4, age=1)
    story.tell(document, waiting(document, reason, message)).rest()
    assert [item.key for item in story.differences] == want
    assert all(item.kind is Kind.PENDING for item in story.differences)


BEYOND = (
    "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor f0, "
    "previously considered podsets requests (0) + current podset request (12) > maximum capacity "
    "({})"
)


@pytest.mark.parametrize(
    ("reason", "capacity", "want"),
    [
        pytest.param("ExceedsMaxQuota", 8, [], id="the same"),
        pytest.param("Pending", 8, [], id="without the gate for reasons"),
        pytest.param("WaitingForQuota", 8, ["ns/w"], id="another reason"),
        pytest.param("ExceedsMaxQuota", 10, ["ns/w"], id="another quota"),
    ],
)
def test_amounts_that_hang_on_quota_alone_are_compared(reason, capacity, want):
    story = Story(queue()).rest()
    document = workload("w", "q", gpus=12)
    story.tell(document, waiting(document, reason, BEYOND.format(capacity))).rest()
    assert [item.key for item in story.differences] == want


def test_trees_rest_by_themselves():
    story = Story(queue("calm"), queue("busy", gpus=1000)).rest()
    story.tell(workload("w", "calm", gpus=4))
    for number in range(20):
        document = workload(f"b{number}", "busy", gpus=1, age=number)
        story.tell(document)
        story.admit(document, "busy")
        story.rest(1)
    assert [item.key for item in story.differences] == ["ns/w"]


def test_what_never_rests_is_passed_over():
    story = Story(queue(gpus=1000)).rest()
    for number in range(700):
        document = workload(f"w{number}", "q", gpus=1, age=number)
        story.tell(document)
        story.admit(document, "q")
        story.rest(1)
    assert story.compared == 0
    assert story.passed_over > 500
    assert story.differences == []


def claimed(name: str, template: str, *, gpus: int, story: Story):
    """A Workload that claims devices, and the same as Kueue admits it."""
    made = workload(name, "q", pod_set({}, resourceClaims=by_template(template)))
    held = reserved(workload(name, "q", pod_set({H100: gpus})), "q", at=stamp(story.now))
    return made, {**made, "status": held["status"]}


def test_templates_of_claims_come_and_go_with_their_jobs_and_make_no_difference():
    """Each job brings its own: none is there for long, and all are there when it counts."""
    counted = cluster_queue("q", group(f0=quota(4, resource=H100)))
    story = Story(counted, queue("other"), configuration=MAPPED).rest()
    story.tell(workload("open", "other", gpus=1))  # Kueue takes its time: not at rest
    for number in range(3):
        mine = claim_template(f"t{number}", exactly(4))
        made, admitted = claimed(f"w{number}", f"t{number}", gpus=4, story=story)
        story.tell(mine, made, admitted, finished(admitted)).gone(made).gone(mine).rest(2)
    story.rest()
    assert [item.key for item in story.differences] == ["ns/open"]
    assert story.compared == 4
    base = story.episodes._base
    assert base is not None
    story.rest()
    assert not any(base.state.devices.has_template(f"ns/t{number}") for number in range(3))


def test_claim_that_kueue_admitted_without_its_template_is_a_difference():
    counted = cluster_queue("q", group(f0=quota(4, resource=H100)))
    story = Story(counted, configuration=MAPPED).rest()
    made, admitted = claimed("w", "t", gpus=4, story=story)
    [found] = story.tell(made, admitted).rest().differences
    assert (found.key, found.portal_says.document()["reason"]) == ("ns/w", "Misconfigured")


def test_template_that_is_back_before_it_was_forgotten_stays():
    counted = cluster_queue("q", group(f0=quota(4, resource=H100)))
    mine = claim_template("t", exactly(4))
    story = Story(counted, mine, configuration=MAPPED).rest()
    story.gone(mine).tell(mine).rest()
    made, admitted = claimed("w", "t", gpus=4, story=story)
    assert story.tell(made, admitted).rest().differences == []
