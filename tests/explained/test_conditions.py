"""What Kueue and Kubernetes say of a job that does not run, in plain words."""

from __future__ import annotations

import pytest

from clusters.explaining.conditions import clause, plain
from clusters.kueue.preemption.classic import PreemptionReason


@pytest.mark.parametrize(
    ("reason", "message", "want"),
    [
        pytest.param(
            "AdmissionCheck",
            'Evicted due to AdmissionCheck in Retry state: "budget" (later)',
            "An admission check asked to try the job again later, so it gave its GPUs back and "
            "waits in its queue.",
            id="check retries",
        ),
        pytest.param(
            "Pending",
            'Evicted due to AdmissionCheck in Retry state: "budget" (later)',
            "An admission check asked to try the job again later, so it gave its GPUs back and "
            "waits in its queue.",
            id="the message stays when the reason is gone",
        ),
        pytest.param(
            "DeactivatedDueToAdmissionCheck",
            "The workload is deactivated due to AdmissionChecks in Rejected state",
            "An admission check rejected the job: it was deactivated, and asks for no GPUs until "
            "somebody puts it back in the queue.",
            id="check rejects",
        ),
        pytest.param(
            "DeactivatedDueToRequeuingLimitExceeded",
            "The workload is deactivated due to exceeding the maximum number of re-queuing retries",
            "The pods of the job were not ready in time too often, so it was deactivated.",
            id="requeued too often",
        ),
        pytest.param(
            "DeactivatedDueToMaximumExecutionTimeExceeded",
            "The workload is deactivated due to exceeding the maximum execution time",
            "The job ran longer than its own time limit allows, so it was stopped and deactivated.",
            id="ran too long",
        ),
        pytest.param(
            "PodsReadyTimeout",
            "Exceeded the PodsReady timeout acme-vision/train",
            "Its pods were not ready in time, so it was stopped and is tried again later.",
            id="pods not ready",
        ),
        pytest.param(
            "ClusterQueueStopped",
            "The ClusterQueue is stopped",
            "Its queue is stopped, so nothing runs from it.",
            id="queue stopped",
        ),
        pytest.param(
            "Suspended",
            "ClusterQueue acme-vision is inactive",
            "Its queue is stopped, so nothing runs from it.",
            id="queue inactive",
        ),
        pytest.param(
            "WaitingForQuota",
            "couldn't assign flavors to pod set main: insufficient unused quota for "
            "nvidia.com/gpu in flavor h100, 8 more needed",
            "Too few GPUs of its budget are free now.",
            id="no quota free",
        ),
        pytest.param(
            "Misconfigured",
            "LocalQueue fast doesn't exist",
            "Its namespace has no queue fast: submit it to a queue that is there.",
            id="no such queue",
        ),
        pytest.param(
            "AdmissionGated",
            "Admission is gated by: x.io/y",
            "Its own admission gate x.io/y holds it back until the gate is removed.",
            id="gated",
        ),
        pytest.param(
            "Failed",
            "Job has reached the specified backoff limit",
            "Its pods failed more often than its backoffLimit allows.",
            id="pods failed",
        ),
        pytest.param("", "exit 1.", "The cluster says: exit 1.", id="not known, quoted"),
        pytest.param("Odd", "", "The cluster says: Odd.", id="only a reason"),
        pytest.param("", "", "", id="nothing said"),
    ],
)
def test_plain_says_what_a_condition_means(reason: str, message: str, want: str):
    assert plain(reason, message) == want


@pytest.mark.parametrize("why", PreemptionReason)
def test_every_kind_of_preemption_has_words_of_its_own(why: PreemptionReason):
    message = (
        f"Preempted to accommodate a workload (UID: u, JobUID: j) due to {why.words}; preemptor "
        "path: /a/b; preemptee path: /a/c"
    )
    words = clause("Preempted", message)
    assert words == clause(why.text, "")
    others = [clause(other.text, "") for other in PreemptionReason if other is not why]
    assert words.startswith("it was preempted: ") and words not in others
