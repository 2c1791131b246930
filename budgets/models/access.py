"""Who may do what."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.db import models
from django.db.models import Q
from django.utils.crypto import salted_hmac

from budgets.models.base import optional


class User(AbstractUser):
    """A person; the time zone is only for display.

    Attributes:
        access_epoch: Sessions of an earlier one open nothing any more.
        approves_from: Before it they approve nothing: somebody else gave them finance, set their
            password, or removed their second factor.
        vouched_until: From it on their API tokens open nothing until they sign in with the
            company's account again; None: they have none.
    """

    time_zone = models.CharField(max_length=64, default="UTC")
    access_epoch = models.PositiveIntegerField(default=0, editable=False)
    approves_from = models.DateTimeField(null=True, blank=True, editable=False)
    vouched_until = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["username"]

    def get_session_auth_hash(self) -> str:
        """What a session has to know of its user to go on: the password and the epoch."""
        return self._session_hash(None)

    def get_session_auth_fallback_hash(self) -> Iterator[str]:
        """The same under the keys before this one."""
        return map(self._session_hash, settings.SECRET_KEY_FALLBACKS)

    def _session_hash(self, secret: str | bytes | None) -> str:
        told = f"{self.access_epoch}:{self.password}"
        return salted_hmac(
            "budgets.User.session", told, secret=secret, algorithm="sha256"
        ).hexdigest()


def person() -> models.ForeignKey[User | None, User | None]:
    """A column of who did something; None: the portal itself, or nobody yet."""
    return optional(User)


class Role(models.TextChoices):
    """Admin, finance and auditor see everything; owner and viewer see their scope."""

    ADMIN = "admin", "Platform admin"
    FINANCE = "finance", "Finance"
    AUDITOR = "auditor", "Auditor"
    OWNER = "owner", "Workspace owner"
    VIEWER = "viewer", "Viewer"


PLATFORM_ROLES = (Role.ADMIN, Role.FINANCE, Role.AUDITOR)


def _once_where_it_fits(name: str, *whose: str) -> list[models.BaseConstraint]:
    """A role once for each of ``whose`` in one place, and only where the role can be."""
    places: tuple[tuple[str, list[str], Q], ...] = (
        ("on_platform", [], Q(account__isnull=True, workspace__isnull=True)),
        ("in_account", ["account"], Q(account__isnull=False)),
        ("in_workspace", ["workspace"], Q(workspace__isnull=False)),
    )
    own = (Role.OWNER, Role.VIEWER)
    return [
        *(
            models.UniqueConstraint(
                fields=[*whose, "role", *place], condition=holds, name=f"{name}_once_{where}"
            )
            for where, place, holds in places
        ),
        models.CheckConstraint(
            name=f"{name}_scope_fits_role",
            condition=(
                Q(role__in=PLATFORM_ROLES, account__isnull=True, workspace__isnull=True)
                | Q(role__in=own, account__isnull=False, workspace__isnull=True)
                | Q(role__in=own, account__isnull=True, workspace__isnull=False)
            ),
        ),
    ]


class Membership(models.Model):
    """One role of one user: platform-wide, for an account, or for a workspace.

    Attributes:
        provider: Whose group gives it, and takes it back; empty: a person gave it, and it stays.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role)
    account = models.ForeignKey(
        "budgets.Account", on_delete=models.CASCADE, null=True, blank=True, related_name="members"
    )
    workspace = models.ForeignKey(
        "budgets.Workspace", on_delete=models.CASCADE, null=True, blank=True, related_name="members"
    )
    provider = models.SlugField(max_length=40, blank=True, default="", editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = _once_where_it_fits("membership", "user")


class Identity(models.Model):
    """Somebody's account at the company's provider; who has one signs in without a password here.

    Attributes:
        issuer: As the provider names itself; with the subject it is one person's, for ever.
        groups: Names, as of the last sign-in.
        subject: A machine's begins with ``MACHINE``, before the name of its client.
    """

    MACHINE = "client:"

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="identities")
    provider = models.SlugField(max_length=40)
    issuer = models.CharField(max_length=300)
    subject = models.CharField(max_length=255)
    groups = models.JSONField(default=list, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    seen_at = models.DateTimeField()

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["issuer", "subject"], name="identity_once"),
        ]


class GroupRule(models.Model):
    """Whoever is in a group at the company's provider has a role here."""

    provider = models.SlugField(max_length=40)
    group = models.CharField(max_length=200)
    role = models.CharField(max_length=16, choices=Role)
    account = models.ForeignKey("budgets.Account", on_delete=models.CASCADE, null=True, blank=True)
    workspace = models.ForeignKey(
        "budgets.Workspace", on_delete=models.CASCADE, null=True, blank=True
    )
    added_by = person()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["provider", "group", "pk"]
        constraints = _once_where_it_fits("group_rule", "provider", "group")

    def __str__(self) -> str:
        return f"{self.group} of {self.provider}"


class ApiToken(models.Model):
    """A token for the API; only its SHA-256 digest is kept."""

    class Scope(models.TextChoices):
        READ = "read", "Read only"
        WRITE = "write", "Read and write"

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=80)
    prefix = models.CharField(max_length=12)
    digest = models.CharField(max_length=64, unique=True)
    scope = models.CharField(max_length=8, choices=Scope.choices, default=Scope.READ)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]


class SecondFactor(models.Model):
    """What somebody has besides their password: an app that shows codes by time.

    Attributes:
        secret_sealed: Under the keys of :mod:`budgets.sealing`; shown while it is set up only.
        confirmed_at: Since when it is asked for; None: begun, and no code has come yet.
        last_step: Of the last code that was taken, in steps of 30 s since 1970; none counts twice.
        misses: Wrong codes since the last right one.
    """

    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="second_factor")
    secret_sealed = models.BinaryField()
    confirmed_at = models.DateTimeField(null=True)
    last_step = models.BigIntegerField(default=0)
    misses = models.PositiveIntegerField(default=0)


class RecoveryCode(models.Model):
    """A code that opens once in place of the app; only its SHA-256 digest is kept."""

    factor = models.ForeignKey(SecondFactor, on_delete=models.CASCADE, related_name="recovery")
    digest = models.CharField(max_length=64, unique=True)
    used_at = models.DateTimeField(null=True)
