"""A registered cluster, its health and nodes, the shifts that work on it, and who starts them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Self

from django.conf import settings
from django.db import models
from django.db.models import Q

from budgets.models.base import FrozenFields, dns_label


class ClusterQuerySet(models.QuerySet["Cluster"]):
    """Clusters by what has become of them."""

    def registered(self) -> Self:
        """Those that were not removed."""
        return self.exclude(state=Cluster.State.REMOVED)

    def active(self) -> Self:
        """Those that promises go to."""
        return self.filter(state=Cluster.State.ACTIVE)

    def workers(self) -> Self:
        """Those that the manager dispatches to, in the order of the fleet."""
        return self.filter(role=Cluster.Role.WORKER).order_by("position", "slug")

    def running_jobs(self) -> Self:
        """Those that have GPUs: workers, single clusters, and a manager that was one."""
        return self.exclude(role=Cluster.Role.MANAGER, own_queue=Cluster.OwnQueue.NONE)

    def taking_jobs(self) -> Self:
        """Those where jobs are submitted: the manager, and single clusters."""
        return self.filter(role__in=(Cluster.Role.MANAGER, Cluster.Role.SINGLE))

    def without_secrets(self) -> Self:
        """For pages: sealed credentials are not read."""
        return self.defer("kubeconfig_sealed", "multikueue_kubeconfig_sealed")


class Cluster(FrozenFields):
    """One Kubernetes cluster. Credentials are MultiFernet tokens; see ``clusters.vault``.

    Of the cluster that the portal runs in none is stored, see ``clusters.credentials``.
    """

    class Role(models.TextChoices):
        MANAGER = "manager"
        WORKER = "worker"
        # Alone: jobs are submitted where they run.
        SINGLE = "single"

    class Mode(models.TextChoices):
        KUEUE = "kueue", "Kueue decides"
        PORTAL = "portal", "The portal decides"

    class DriftPolicy(models.TextChoices):
        RESTORE = "restore", "Put back what the portal wants"
        KEEP = "keep", "Keep the hand edit and show it"

    class Guard(models.TextChoices):
        OFF = "off", "Off"
        TELL = "tell", "Tell what is found"
        CURE = "cure", "Prevent and cure"

    class OwnQueue(models.TextChoices):
        NONE = "", "No second queue"
        OPEN = "open", "Runs jobs itself"
        HELD = "held", "Starts no jobs itself"

    class State(models.TextChoices):
        ACTIVE = "active"
        DRAINING = "draining"
        REMOVED = "removed"

    # What `user_kind` says where no kubeconfig is stored; `context` is then the account's user.
    OWN_ACCOUNT = "own service account"

    frozen_fields = ("slug",)

    slug = models.CharField(max_length=40, unique=True, validators=[dns_label])
    name = models.CharField(max_length=120)
    role = models.CharField(max_length=8, choices=Role.choices)
    # A single cluster that became a manager, and stays so when it is a single one again: queue
    # `default` is its own, and `fleet` is that of jobs for workers. See services.roles.
    own_queue = models.CharField(
        max_length=4,
        choices=OwnQueue.choices,
        blank=True,
        default=OwnQueue.NONE,
        # For the release before, which may run on for a while and does not know the column.
        db_default="",
    )
    mode = models.CharField(max_length=8, choices=Mode.choices)
    state = models.CharField(max_length=10, choices=State.choices, default=State.ACTIVE)
    position = models.PositiveIntegerField(default=0)
    # What a person may see of the credential.
    server = models.CharField(max_length=300)
    context = models.CharField(max_length=200)
    user_kind = models.CharField(max_length=40)
    ca_fingerprint = models.CharField(max_length=100, blank=True)
    # Of its namespace kube-system: what tells this cluster from every other. Empty: not asked yet.
    uid = models.CharField(max_length=64, blank=True)
    # Of the client certificate or the token; None: it does not say.
    certificate_expires_at = models.DateTimeField(null=True, blank=True)
    # Never shown, never logged, never in a task argument.
    kubeconfig_sealed = models.BinaryField()
    multikueue_kubeconfig_sealed = models.BinaryField(null=True, blank=True)
    multikueue_token_expires_at = models.DateTimeField(null=True, blank=True)
    kueue_configuration = models.JSONField(default=dict, blank=True)
    writes_enabled = models.BooleanField(default=True)
    drift_policy = models.CharField(
        max_length=8, choices=DriftPolicy.choices, default=DriftPolicy.RESTORE
    )
    allows_local_jobs = models.BooleanField(default=False)
    # Service accounts, NAMESPACE/NAME, of controllers that make the parts of queued jobs there.
    operators = models.JSONField(default=list, blank=True)
    # Where else pods may ask for GPUs; None where nothing is refused outside of workspaces.
    gpu_namespaces = models.JSONField(null=True, blank=True)
    # What may be done about the known defects of a live Kueue; see reconcile.external.
    guard = models.CharField(max_length=4, choices=Guard.choices, default=Guard.TELL)
    generation = models.PositiveBigIntegerField(default=1)
    preflight = models.JSONField(default=dict, blank=True)
    # A reason here stops quota sync until an admin decides (a restored backup, for one).
    blocked_reason = models.CharField(max_length=500, blank=True)
    # Subjects on the cluster that this database does not know and an admin gave up: pruned.
    forgotten_subjects = models.JSONField(default=list, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ClusterQuerySet.as_manager()

    class Meta:
        ordering = ["role", "position", "slug"]
        constraints = [
            models.UniqueConstraint(
                fields=["role"],
                condition=Q(role="manager") & ~Q(state="removed"),
                name="one_manager",
            ),
            models.UniqueConstraint(
                fields=["uid"],
                condition=~Q(uid="") & ~Q(state="removed"),
                name="cluster_registered_once",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_own(self) -> bool:
        """Whether the portal runs in it and signs in there by its own service account."""
        return self.user_kind == self.OWN_ACCOUNT

    @property
    def is_manager(self) -> bool:
        """Whether jobs are submitted here to run on workers; else they run here."""
        return self.role == self.Role.MANAGER

    @property
    def is_single(self) -> bool:
        """Whether jobs are submitted here, and run here."""
        return self.role == self.Role.SINGLE

    @property
    def takes_jobs(self) -> bool:
        """Whether jobs are submitted here."""
        return self.is_manager or self.is_single

    @property
    def runs_jobs(self) -> bool:
        """Whether GPUs of its own count: not on a manager that only dispatches."""
        return not self.is_manager or bool(self.own_queue)

    @property
    def is_worker(self) -> bool:
        """Whether jobs come here from the manager."""
        return self.role == self.Role.WORKER


class ClusterHealth(models.Model):
    """What the last contact showed; apart from Cluster because it is written every few seconds."""

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, related_name="health")
    reachable = models.BooleanField(default=False)
    reason = models.CharField(max_length=60, blank=True)
    message = models.CharField(max_length=500, blank=True)
    last_contact_at = models.DateTimeField(null=True, blank=True)
    lost_since = models.DateTimeField(null=True, blank=True)
    checked_at = models.DateTimeField(null=True, blank=True)
    latency_ms = models.PositiveIntegerField(null=True, blank=True)
    clock_skew_s = models.IntegerField(null=True, blank=True)
    kubernetes_version = models.CharField(max_length=40, blank=True)
    kueue_version = models.CharField(max_length=40, blank=True)
    # The manager's view of this worker (MultiKueueCluster Active), empty on the manager.
    multikueue_active = models.CharField(max_length=8, blank=True)
    multikueue_message = models.CharField(max_length=500, blank=True)


class ShiftRun(models.Model):
    """One shift of one (cluster, role): who holds it and whether it is alive."""

    # A row without a heartbeat for so long belongs to nobody; sooner than its Lease ends.
    STALE = timedelta(seconds=max(6.0, 0.4 * settings.LEASE_SECONDS))

    class Role(models.TextChoices):
        QUOTA = "quota"
        ADMISSION = "admission"
        DISPATCH = "dispatch"
        USAGE = "usage"
        SHADOW = "shadow"
        SPEND = "spend"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="shifts")
    role = models.CharField(max_length=10, choices=Role.choices)
    holder = models.CharField(max_length=120)
    started_at = models.DateTimeField()
    # Both by the database's clock, so that ages do not depend on anybody else's.
    heartbeat_at = models.DateTimeField()
    lease_renewed_at = models.DateTimeField(null=True, blank=True)
    # resourceVersion of the Lease at lease_renewed_at: unchanged since means not renewed since.
    lease_version = models.CharField(max_length=40, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(max_length=300, blank=True)
    watch_age_s = models.PositiveIntegerField(null=True, blank=True)
    # Objects that the shift has set aside for what they raised; the newest of them in a sentence.
    parked = models.PositiveIntegerField(default=0)
    parked_says = models.CharField(max_length=500, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["cluster", "role"], name="shift_run_newest_only")
        ]

    def is_alive(self, *, now: datetime) -> bool:
        """Whether somebody works on it."""
        return self.ended_at is None and now - self.heartbeat_at < self.STALE


class NodeSight(models.Model):
    """One node of one flavor, as it was counted last.

    ``gpus`` are those that it offers, 0 while it is not ready or takes no pods; ``used`` is what
    its pods asked for. ``labels`` are at most ``clusters.reconcile.usage.measure.MOST_LABELS``.
    """

    cluster = models.CharField(max_length=40)
    name = models.CharField(max_length=253)
    flavor = models.CharField(max_length=40)
    labels = models.JSONField(default=dict)
    gpus = models.PositiveIntegerField()
    used = models.PositiveBigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cluster", "name"], name="node_sight_once")]
        indexes = [models.Index(fields=["flavor", "cluster"], name="node_sight_by_flavor")]


class BeatLease(models.Model):
    """The one row: which process sends beat's tasks, and when it said so last, by the database."""

    ONLY = 1

    holder = models.CharField(max_length=300)
    renewed_at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(name="beat_lease_only_one", condition=Q(pk=1))]
