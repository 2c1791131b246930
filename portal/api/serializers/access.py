"""People, roles, tokens, the audit log, long operations."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers

from budgets import models
from budgets.selectors import SetupStep
from portal.api.serializers.base import (
    NamedField,
    RecordSerializer,
    Strict,
    account_field,
    name_of,
    workspace_field,
)


class LoginInput(Strict):
    """Name and password, and what the token is to be."""

    username = serializers.CharField(max_length=150)
    password = serializers.CharField(max_length=1000, trim_whitespace=False)
    name = serializers.CharField(max_length=80, default="login")
    scope = serializers.ChoiceField(models.ApiToken.Scope.choices, default="read")
    days = serializers.IntegerField(min_value=1, max_value=365, default=30)


class TokenSerializer(serializers.ModelSerializer[models.ApiToken]):
    """A token without its text, which is kept nowhere."""

    class Meta:
        model = models.ApiToken
        fields = [
            "id", "name", "prefix", "scope", "created_at", "expires_at", "last_used_at",
            "revoked_at",
        ]  # fmt: skip


class NewTokenSerializer(TokenSerializer):
    """A fresh token, with its text this one time."""

    token = serializers.CharField(read_only=True)

    class Meta(TokenSerializer.Meta):
        fields = ["token", *TokenSerializer.Meta.fields]


class RoleSerializer(serializers.ModelSerializer[models.Membership]):
    """One role of the caller."""

    account = name_of("account.slug")
    workspace = name_of("workspace.namespace")

    class Meta:
        model = models.Membership
        fields = ["role", "account", "workspace"]


class MeSerializer(serializers.Serializer[Any]):
    """Who is asking, and what they may do."""

    username = serializers.CharField()
    email = serializers.CharField()
    time_zone = serializers.CharField()
    scope = serializers.CharField(help_text="Of the token in use; 'session' without one.")
    roles = RoleSerializer(many=True)


class UserSerializer(serializers.ModelSerializer[models.User]):
    """A person as admins see them."""

    class Meta:
        model = models.User
        fields = [
            "username", "email", "first_name", "last_name", "is_active", "date_joined",
            "last_login",
        ]  # fmt: skip


class UserInput(Strict):
    """A new person; without a password they cannot log in until one is set."""

    username = serializers.CharField(max_length=150)
    email = serializers.CharField(max_length=254)
    password = serializers.CharField(max_length=1000, trim_whitespace=False, required=False)
    first_name = serializers.CharField(max_length=150, required=False, allow_blank=True)
    last_name = serializers.CharField(max_length=150, required=False, allow_blank=True)


class PasswordInput(Strict):
    """A new password for somebody else."""

    password = serializers.CharField(max_length=1000, trim_whitespace=False)


class MemberSerializer(serializers.ModelSerializer[models.Membership]):
    """One role of one person: platform-wide, in an account, or in a workspace."""

    username = serializers.CharField(source="user.username", read_only=True)
    account = name_of("account.slug")
    workspace = name_of("workspace.namespace")

    class Meta:
        model = models.Membership
        fields = ["id", "username", "role", "account", "workspace", "created_at"]


def _everybody(user: models.User) -> QuerySet[models.User]:
    return models.User.objects.all()


class MemberInput(Strict):
    """Owner and viewer need an account or a workspace, the other roles neither."""

    username = NamedField(_everybody, "username", max_length=150, source="user")
    role = serializers.ChoiceField(models.Role.choices)
    account = account_field(required=False, allow_null=True)
    workspace = workspace_field(required=False, allow_null=True)


class AuditSerializer(serializers.ModelSerializer[models.AuditEntry]):
    """Who changed what, when and why."""

    workspace = name_of("workspace.namespace")
    account = name_of("account.slug")

    class Meta:
        model = models.AuditEntry
        fields = [
            "id", "at", "actor_name", "action", "subject", "account", "workspace", "cluster",
            "reason", "before", "after",
        ]  # fmt: skip


class OperationSerializer(serializers.ModelSerializer[models.Operation]):
    """Progress of long work; ``done`` of ``total`` steps."""

    class Meta:
        model = models.Operation
        fields = [
            "id", "kind", "subject", "state", "step", "done", "total", "message", "created_at",
            "finished_at",
        ]  # fmt: skip


class SetupStepSerializer(RecordSerializer):
    """One step from an empty portal to the first budget."""

    record = SetupStep
