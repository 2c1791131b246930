"""What rules for groups of the company give and would take; for platform admins."""

from __future__ import annotations

from django.db.models import QuerySet

from budgets.models import GroupRule, Identity, Membership, User


def is_machine(user: User) -> bool:
    """Whether an account is one of a program, which signs in nowhere (``Identity.MACHINE``)."""
    return Identity.objects.filter(user=user, subject__startswith=Identity.MACHINE).exists()


def group_rules() -> QuerySet[GroupRule]:
    """All of them, by provider and group."""
    return GroupRule.objects.select_related("account", "workspace__account", "added_by")


def lost_without(rule: GroupRule) -> list[Membership]:
    """Roles that would go with a rule: those that no other rule gives to the same person.

    Groups are those of each one's last sign-in. Three queries.
    """
    same = {"role": rule.role, "account": rule.account, "workspace": rule.workspace}
    others = GroupRule.objects.filter(provider=rule.provider, **same).exclude(pk=rule.pk)
    enough = set(others.values_list("group", flat=True))
    given = Membership.objects.filter(provider=rule.provider, **same).select_related("user")
    kept = {
        identity.user_id
        for identity in Identity.objects.filter(provider=rule.provider)
        if enough.intersection(identity.groups)
    }
    return [row for row in given.order_by("user__username") if row.user_id not in kept]


def gained_by(rule: GroupRule) -> list[str]:
    """Who would get a rule's role at their next sign-in, by the groups of their last one.

    Names of people; whoever was never here is not among them. Two queries.
    """
    same = {"role": rule.role, "account": rule.account, "workspace": rule.workspace}
    have = set(Membership.objects.filter(**same).values_list("user_id", flat=True))
    people = Identity.objects.filter(provider=rule.provider, user__is_active=True)
    return sorted(
        identity.user.username
        for identity in people.select_related("user")
        if rule.group in identity.groups and identity.user_id not in have
    )
