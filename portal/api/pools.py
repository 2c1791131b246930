"""Account pools and platform pools: amounts and shares."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from budgets import models, selectors
from budgets import services as promises
from budgets.models import PoolShare, User
from portal.api.fleet import SLUG
from portal.api.paging import BY_SLUG
from portal.api.shapes import (
    GpusField,
    InstantField,
    ReasonInput,
    RowSerializer,
    Strict,
    account_field,
    flavor_field,
)
from portal.api.views import DONE, MADE, Noun, View, deed, lists, shows
from portal.bounds import NAME


class PoolAmountSerializer(RowSerializer[models.PoolAmount]):
    """GPUs of a flavor in a pool, from and until."""

    told = "flavor gpus valid_from valid_until"


class PoolShareSerializer(RowSerializer[models.PoolShare]):
    """An account that draws on a platform pool; absent flavors are without limit."""

    limits = serializers.DictField(child=serializers.IntegerField())
    told = "account limits"


class PoolSerializer(RowSerializer[models.Pool]):
    """An account's own pool, or with ``account`` null a platform pool."""

    amounts = PoolAmountSerializer(many=True)
    shares = PoolShareSerializer(many=True)
    told = "slug name account generation archived_at amounts shares"


class PoolInput(Strict):
    """A new, empty pool."""

    slug = serializers.CharField(**SLUG)
    name = serializers.CharField(**NAME)
    account = account_field(required=False, allow_null=True)


class PoolAmountInput(Strict):
    """From now, when ``valid_from`` is left out."""

    flavor = flavor_field()
    gpus = GpusField()
    valid_from = InstantField(required=False, allow_null=True)
    valid_until = InstantField(required=False, allow_null=True)


class PoolShareInput(Strict):
    """Flavor → most GPUs; an absent flavor means all of it."""

    account = account_field()
    limits = serializers.DictField(child=GpusField(), default=dict)


class VisiblePools(Noun):
    """Pools that the caller's accounts have or draw on."""

    each = "One pool."
    shape = PoolSerializer
    lookup_field = lookup_value_converter = "slug"
    list = lists(selectors.visible_pools, BY_SLUG)
    create = deed(promises.create_pool, takes=PoolInput, code=MADE)
    retrieve = shows()
    archive = deed(
        promises.archive_pool,
        takes=ReasonInput,
        code=DONE,
        text="Puts a pool away; its accounts draw on nothing from now on.",
    )
    amounts = deed(
        promises.set_pool_amount,
        takes=PoolAmountInput,
        code=MADE,
        text="GPUs of a flavor in a pool, from now or later.",
    )
    shares = deed(
        promises.set_pool_share,
        takes=PoolShareInput,
        method="PUT",
        text="Accounts that draw on a platform pool.",
    )

    def found(self, user: User, slug: str) -> dict[str, Any]:
        """One pool that this user may see."""
        return {"pool": selectors.visible_pools(user).get(slug=slug)}

    def shown(self, user: User, made: Any, slug: str = "") -> Any:
        """The pool, read again after a deed."""
        return self.found(user, slug)["pool"] if slug else made


class PoolShareView(View):
    """One account's share."""

    delete = deed(promises.remove_pool_share, code=DONE)

    def found(self, user: User, slug: str, account: str) -> dict[str, Any]:
        pool = selectors.visible_pools(user).get(slug=slug)
        # Only the shares that this user sees are on the pool.
        share = next((row for row in pool.shares.all() if row.account.slug == account), None)
        if share is None:
            raise PoolShare.DoesNotExist
        return {"share": share}
