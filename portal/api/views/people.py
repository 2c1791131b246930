"""People and their roles."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404

from budgets import selectors
from budgets import services as promises
from budgets.errors import NotAllowed
from budgets.models import User
from portal.api.paging import CREATED, USERNAME
from portal.api.serializers import access as shapes
from portal.api.views.base import DONE, MADE, View, admin, answers, deed, pages


class UsersView(View):
    """Everybody who can log in; for admins."""

    post = deed(
        promises.create_user, shapes.UserSerializer, takes=shapes.UserInput, code=MADE, by=admin
    )

    @pages(shapes.UserSerializer, USERNAME, by=admin)
    def get(self, user: User) -> Any:
        return User.objects.all()


class PasswordView(View):
    """A new password for somebody else; one's own is changed on its page, with the old one."""

    @answers(None, takes=shapes.PasswordInput, code=DONE, by=admin)
    def put(self, user: User, username: str, password: str) -> None:
        if username == user.username:
            raise NotAllowed("Change your own password on its page, where the old one is asked.")
        found = get_object_or_404(User, username=username)
        promises.set_password(user, user=found, password=password)


class MembersView(View):
    """Roles: all for platform roles, else one's own and those of what one owns."""

    filters = {
        "username": "user__username",
        "role": "role",
        "account": "account__slug",
        "workspace": "workspace__namespace",
    }

    @pages(shapes.MemberSerializer, CREATED)
    def get(self, user: User) -> Any:
        return selectors.visible_memberships(user)

    @answers(shapes.MemberSerializer, takes=shapes.MemberInput, code=MADE, by=admin)
    def post(self, admin: User, **given: Any) -> Any:
        """Gives a role; giving it twice changes nothing."""
        return promises.grant_role(admin, **given)


class MemberView(View):
    """One role of one person."""

    delete = deed(promises.revoke_role, None, code=DONE)

    def found(self, user: User, pk: int) -> dict[str, Any]:
        return {"membership": selectors.visible_memberships(user).get(pk=pk)}
