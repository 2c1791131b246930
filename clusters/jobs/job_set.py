"""JobSet: a Job template for each kind of replica."""

from __future__ import annotations

from typing import Final

from clusters.documents.resources import Resource
from clusters.jobs.described import Described, PodSetsAt
from clusters.jobs.paths import ANY

JOB_SET: Final = Described(
    Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", True),
    integration="jobset.x-k8s.io/jobset",
    suspend=("suspend",),
    not_sent=(("ttlSecondsAfterFinished",),),
    active=(("replicatedJobsStatus", ANY, "active"),),
    pod_sets_at=(
        PodSetsAt(
            ("replicatedJobs", ANY),
            template=("template", "spec", "template"),
            counts=(
                (("replicas",),),
                (("template", "spec", "parallelism"), ("template", "spec", "completions")),
            ),
            name_field="name",
        ),
    ),
    ready_counts="replicatedJobsStatus",
)
