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
    RowSerializer,
    Strict,
    account_field,
    workspace_field,
)


class LoginInput(Strict):
    """Name and password, and what the token is to be."""

    username = serializers.CharField(max_length=150)
    password = serializers.CharField(max_length=1000, trim_whitespace=False)
    name = serializers.CharField(max_length=80, default="login")
    scope = serializers.ChoiceField(models.ApiToken.Scope.choices, default="read")
    days = serializers.IntegerField(min_value=1, max_value=365, default=30)


class TokenSerializer(RowSerializer[models.ApiToken]):
    """A token without its text, which is kept nowhere."""

    told = [
        "id", "name", "prefix", "scope", "created_at", "expires_at", "last_used_at",
        "revoked_at",
    ]  # fmt: skip


class NewTokenSerializer(TokenSerializer):
    """A fresh token, with its text this one time."""

    token = serializers.CharField(read_only=True)
    told = ["token", *TokenSerializer.told]


class RoleSerializer(RowSerializer[models.Membership]):
    """One role of the caller."""

    told = ["role", "account", "workspace"]


class MeSerializer(serializers.Serializer[Any]):
    """Who is asking, and what they may do."""

    username = serializers.CharField()
    email = serializers.CharField()
    time_zone = serializers.CharField()
    scope = serializers.CharField(help_text="Of the token in use; 'session' without one.")
    roles = RoleSerializer(many=True)


class UserSerializer(RowSerializer[models.User]):
    """A person as admins see them."""

    told = [
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


class MemberSerializer(RowSerializer[models.Membership]):
    """One role of one person: platform-wide, in an account, or in a workspace."""

    username = serializers.CharField(source="user.username", read_only=True)
    told = ["id", "username", "role", "account", "workspace", "created_at"]


def _everybody(user: models.User) -> QuerySet[models.User]:
    return models.User.objects.all()


class MemberInput(Strict):
    """Owner and viewer need an account or a workspace, the other roles neither."""

    username = NamedField(_everybody, "username", max_length=150, source="user")
    role = serializers.ChoiceField(models.Role.choices)
    account = account_field(required=False, allow_null=True)
    workspace = workspace_field(required=False, allow_null=True)


class AuditSerializer(RowSerializer[models.AuditEntry]):
    """Who changed what, when and why."""

    told = [
        "id", "at", "actor_name", "action", "subject", "account", "workspace", "cluster",
        "reason", "before", "after",
    ]  # fmt: skip


class OperationSerializer(RowSerializer[models.Operation]):
    """Progress of long work; ``done`` of ``total`` steps."""

    told = [
        "id", "kind", "subject", "state", "step", "done", "total", "message", "created_at",
        "finished_at",
    ]  # fmt: skip


class SetupStepSerializer(RecordSerializer[SetupStep]):
    """One step from an empty portal to the first budget."""
