"""Login by token, who one is, people and their roles, audit log, long operations, set-up."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth import authenticate
from django.db.models import QuerySet
from django.http import HttpResponseBase
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from drf_spectacular.views import SpectacularJSONAPIView
from rest_framework import exceptions, serializers
from rest_framework.permissions import AllowAny, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from budgets import models, selectors
from budgets import services as promises
from budgets.errors import NotAllowed, Rejected
from budgets.models import ApiToken, GroupRule, Membership, Operation, User
from budgets.selectors import SetupStep
from budgets.selectors.company import gained_by, group_rules, lost_without
from portal.api.authentication import KEYWORD, scope_of
from portal.api.paging import BY_USERNAME, CREATED, Slice
from portal.api.shapes import (
    NamedField,
    ReasonInput,
    RecordSerializer,
    RowSerializer,
    Strict,
    account_field,
    workspace_field,
)
from portal.api.usage import FilterReader
from portal.api.views import (
    DONE,
    MADE,
    Noun,
    View,
    account_named,
    admin,
    admin_in_session,
    answers,
    checked,
    deed,
    finds,
    lists,
    shows,
    workspace_named,
)
from portal.bounds import PERSON_NAME
from portal.downloads import documents_answer
from portal.signin import OWES, LoginThrottle, half_way, owes_second_factor, second_step


class LoginInput(Strict):
    """Name and password, and what the token is to be."""

    username = serializers.CharField(max_length=150)
    password = serializers.CharField(max_length=1000, trim_whitespace=False)
    code = serializers.CharField(
        max_length=40, required=False, help_text="Of the second factor, where there is one."
    )
    name = serializers.CharField(max_length=80, default="login")
    scope = serializers.ChoiceField(models.ApiToken.Scope.choices, default="read")
    days = serializers.IntegerField(min_value=1, max_value=365, default=30)


class TokenSerializer(RowSerializer[models.ApiToken]):
    """A token without its text, which is kept nowhere."""

    told = "id name prefix scope created_at expires_at last_used_at revoked_at"


class NewTokenSerializer(TokenSerializer):
    """A fresh token, with its text this one time."""

    token = serializers.CharField(read_only=True)
    told = f"token {TokenSerializer.told}"


class RoleSerializer(RowSerializer[models.Membership]):
    """One role of the caller."""

    told = "role account workspace"


class MeSerializer(serializers.Serializer[Any]):
    """Who is asking, and what they may do."""

    username = serializers.CharField()
    email = serializers.CharField()
    time_zone = serializers.CharField()
    scope = serializers.CharField(help_text="Of the token in use; 'session' without one.")
    roles = RoleSerializer(many=True)


class UserSerializer(RowSerializer[models.User]):
    """A person as admins see them."""

    told = "username email first_name last_name is_active date_joined last_login"


class UserInput(Strict):
    """A new person; without a password they cannot log in until one is set."""

    username = serializers.CharField(max_length=150)
    email = serializers.CharField(max_length=254)
    password = serializers.CharField(max_length=1000, trim_whitespace=False, required=False)
    first_name = serializers.CharField(**PERSON_NAME, required=False, allow_blank=True)
    last_name = serializers.CharField(**PERSON_NAME, required=False, allow_blank=True)


class PasswordInput(Strict):
    """A new password for somebody else."""

    password = serializers.CharField(max_length=1000, trim_whitespace=False)


class MemberSerializer(RowSerializer[models.Membership]):
    """One role of one person: platform-wide, in an account, or in a workspace."""

    username = serializers.CharField(source="user.username", read_only=True)
    told = "id username role account workspace created_at"


def _everybody(user: models.User) -> QuerySet[models.User]:
    return models.User.objects.all()


class MemberInput(Strict):
    """Owner and viewer need an account or a workspace, the other roles neither."""

    username = NamedField(_everybody, "username", max_length=150, source="user")
    role = serializers.ChoiceField(models.Role.choices)
    account = account_field(required=False, allow_null=True)
    workspace = workspace_field(required=False, allow_null=True)


class GroupRuleSerializer(RowSerializer[models.GroupRule]):
    """Whoever is in the group at the provider has the role."""

    told = "id provider group role account workspace created_at"


class GroupRuleInput(Strict):
    """Owner and viewer need an account or a workspace, the other roles neither."""

    provider = serializers.CharField(max_length=40)
    group = serializers.CharField(max_length=200)
    role = serializers.ChoiceField(models.Role.choices)
    account = account_field(required=False, allow_null=True)
    workspace = workspace_field(required=False, allow_null=True)


class GroupRuleEffectSerializer(serializers.Serializer[Any]):
    """People by user name, by the groups of each one's last sign-in."""

    gains = serializers.ListField(
        child=serializers.CharField(), help_text="Get the role at their next sign-in."
    )
    loses = serializers.ListField(
        child=serializers.CharField(), help_text="Lose it at once when the rule ends."
    )


class AuditSerializer(RowSerializer[models.AuditEntry]):
    """Who changed what, when and why."""

    told = "id at actor_name action subject account workspace cluster reason before after"


class OperationSerializer(RowSerializer[models.Operation]):
    """Progress of long work; ``done`` of ``total`` steps."""

    told = "id kind subject state step done total message created_at finished_at"


class SetupStepSerializer(RecordSerializer[SetupStep]):
    """One step from an empty portal to the first bill."""


class SchemaView(SpectacularJSONAPIView):
    """The OpenAPI document, for people who can log in."""

    permission_classes = [IsAuthenticated]


class LoginView(View):
    """A token for a user name and a password; the only time that the token is shown."""

    authentication_classes: list[type] = []
    permission_classes = [AllowAny]
    throttle_classes = [LoginThrottle]

    def get_authenticate_header(self, request: Request) -> str:
        """A wrong password is a 401, though no credential was asked for."""
        return KEYWORD

    @extend_schema(request=LoginInput, responses={201: NewTokenSerializer})
    def post(self, request: Request) -> Response:
        given = checked(LoginInput, request)
        user = authenticate(request, username=given["username"], password=given["password"])
        if (half := half_way(request)) is not None:
            if "code" not in given or not second_step(request, half, code=given["code"]):
                raise exceptions.AuthenticationFailed(
                    "This account has a second factor. Send the code that its app shows now as "
                    "'code'; each code is taken once."
                )
            user = half
        if not isinstance(user, User):
            words = "User name and password do not match."
            if not settings.PORTAL_LOCAL_PASSWORDS:
                words = "Passwords are switched off here: sign in to the pages and make a token."
            raise exceptions.AuthenticationFailed(words)
        if owes_second_factor(user):
            raise exceptions.PermissionDenied(OWES)
        token, text = promises.create_api_token(
            user,
            user=user,
            name=given["name"],
            scope=given["scope"],
            expires_at=selectors.utc_now() + timedelta(days=given["days"]),
        )
        answer = {"token": text, **TokenSerializer(token).data}
        return Response(answer, status=MADE, headers={"Cache-Control": "no-store"})


class MeView(View):
    """Who is asking, and with which roles."""

    @answers(MeSerializer)
    def get(self, user: User) -> Any:
        roles = Membership.objects.filter(user=user).select_related("account", "workspace")
        return {
            "username": user.username,
            "email": user.email,
            "time_zone": user.time_zone,
            "scope": scope_of(self.request),
            "roles": roles.order_by("role", "pk"),
        }


class Tokens(Noun):
    """The caller's own tokens, without their texts."""

    each = "One of the caller's own tokens."
    shape = TokenSerializer
    found = finds("token", lambda user, pk: ApiToken.objects.get(user=user, pk=pk))
    list = lists(lambda user: ApiToken.objects.filter(user=user), CREATED)
    destroy = deed(promises.revoke_api_token, code=DONE)


class Users(Noun):
    """Everybody who can log in; for admins."""

    each = "One person; for admins."
    shape = UserSerializer
    lookup_field, lookup_value_converter = "username", "str"
    found = finds("user", lambda _, username: get_object_or_404(User, username=username))
    list = lists(lambda user: User.objects.all(), BY_USERNAME, by=admin)
    create = deed(promises.create_user, takes=UserInput, code=MADE, by=admin_in_session)
    retrieve = shows(by=admin)
    deactivate = deed(
        promises.deactivate_user,
        takes=ReasonInput,
        by=admin_in_session,
        text="Switches somebody's sign-in off; their sessions and tokens end.",
    )
    reactivate = deed(
        promises.reactivate_user,
        takes=ReasonInput,
        by=admin_in_session,
        text="Switches somebody's sign-in on again, with the roles that they had.",
    )
    remove_second_factor = deed(
        promises.remove_second_factor,
        takes=ReasonInput,
        by=admin_in_session,
        text="Removes the second factor of somebody who lost it; their sessions and tokens end.",
    )

    @answers(takes=PasswordInput, code=DONE, by=admin_in_session, method="PUT")
    def password(self, admin: User, /, user: User, password: str) -> None:
        """A new password for somebody else; one's own is changed on its page, with the old one."""
        if user == admin:
            raise NotAllowed(
                "Change your own password on its page, which asks for the current one."
            )
        promises.set_password(admin, user=user, password=password)

    @answers(TokenSerializer, order=CREATED, by=admin, method="GET")
    def tokens(self, admin: User, /, user: User) -> QuerySet[ApiToken]:
        """Somebody's tokens, without their texts; for admins."""
        return ApiToken.objects.filter(user=user)


class TokenOfUserView(View):
    """One token of somebody."""

    delete = deed(promises.revoke_api_token, code=DONE, by=admin_in_session)

    def found(self, user: User, username: str, pk: int) -> dict[str, Any]:
        return {"token": ApiToken.objects.get(user__username=username, pk=pk)}


class Members(Noun):
    """Roles: all for platform roles, else one's own and those of what one owns."""

    each = "One role of one person."
    shape = MemberSerializer
    found = finds("membership", lambda user, pk: selectors.visible_memberships(user).get(pk=pk))
    list = lists(
        selectors.visible_memberships,
        CREATED,
        filters={
            "username": "user__username",
            "role": "role",
            "account": "account__slug",
            "workspace": "workspace__namespace",
        },
    )
    destroy = deed(promises.revoke_role, code=DONE, by=admin_in_session)

    @answers(takes=MemberInput, code=MADE, by=admin_in_session)
    def create(self, admin: User, **given: Any) -> Any:
        """Gives a role; giving it twice changes nothing."""
        return promises.grant_role(admin, **given)


class GroupRules(Noun):
    """Which roles the groups of the company's providers give; for admins."""

    each = "One rule for a group; for admins."
    shape = GroupRuleSerializer
    found = finds("rule", lambda _, pk: get_object_or_404(GroupRule, pk=pk))
    list = lists(lambda user: group_rules(), CREATED, by=admin)
    create = deed(promises.add_group_rule, takes=GroupRuleInput, code=MADE, by=admin_in_session)
    retrieve = shows(by=admin)
    destroy = deed(promises.remove_group_rule, code=DONE, by=admin_in_session)

    @answers(GroupRuleEffectSerializer, by=admin, method="GET")
    def effect(self, admin: User, /, rule: GroupRule) -> Any:
        """Who gets the role by this rule at the next sign-in, and who loses it with the rule."""
        loses = [row.user.username for row in lost_without(rule)]
        return {"gains": gained_by(rule), "loses": loses}


AUDIT_FILTER = (
    *(OpenApiParameter(name, str) for name in ("workspace", "account", "cluster")),
    OpenApiParameter("action", str, description="Its beginning, such as budget."),
    OpenApiParameter("actor_name", str, description="User name of who did it."),
    OpenApiParameter("subject", str, description="A part of what was changed."),
    OpenApiParameter("start", str, description="ISO 8601 with zone."),
    OpenApiParameter("end", str, description="Exclusive."),
)


def audit_filter(user: User, request: Request) -> selectors.AuditFilter:
    """What of the log a request asks for.

    Raises:
        Rejected: A name is unknown, or a time is none.
    """
    reader = FilterReader(request)
    since, until = reader.instant("start", None), reader.instant("end", None)
    if reader.faults:
        raise Rejected(reader.faults)
    given = request.query_params
    workspace, account = given.get("workspace"), given.get("account")
    return selectors.AuditFilter(
        workspace=workspace_named(user, workspace) if workspace else None,
        account=account_named(user, account) if account else None,
        since=since,
        until=until,
        **{name: given.get(name, "") for name in ("cluster", "action", "actor_name", "subject")},
    )


class AuditView(View):
    """Newest first."""

    @answers(order=CREATED, shape=AuditSerializer, query=AUDIT_FILTER)
    def get(self, user: User) -> Callable[[int, str | None], Slice]:
        wanted = audit_filter(user, self.request)

        def read(limit: int, cursor: str | None) -> Slice:
            before = int(cursor) if cursor else None
            rows = selectors.audit_entries(user, wanted, before=before, limit=limit + 1)
            return rows[:limit], str(rows[limit - 1].pk) if len(rows) > limit else None

        return read


class AuditFileView(View):
    """All pages of ``audit`` as one file: JSON Lines, or CSV; 422 for more than 100,000 rows."""

    @extend_schema(
        responses={
            (200, "application/x-ndjson"): OpenApiTypes.BINARY,
            (200, "text/csv"): OpenApiTypes.BINARY,
        }
    )
    @answers(
        AuditSerializer,
        query=[*AUDIT_FILTER, OpenApiParameter("form", str, enum=("jsonl", "csv"))],
    )
    def get(self, user: User) -> HttpResponseBase:
        reader = FilterReader(self.request)
        form = reader.choice("form", ("jsonl", "csv"))
        if reader.faults:
            raise Rejected(reader.faults)
        documents = selectors.audit_file(user, audit_filter(user, self.request))
        return documents_answer("audit", documents, columns=selectors.AUDIT_KEYS, form=form)


class Operations(Noun):
    """Progress of long work that this user started (platform roles see all)."""

    lookup_value_converter = "uuid"
    retrieve = shows(OperationSerializer)

    def found(self, user: User, pk: UUID) -> dict[str, Any]:
        rows = Operation.objects.all()
        if not selectors.roles_of(user).sees_everything:
            rows = rows.filter(started_by=user)
        return {"operation": rows.get(pk=pk)}


class SetupView(View):
    """What an empty portal still needs; empty for everybody but admins."""

    get = deed(selectors.setup_steps, SetupStepSerializer, many=True)
