"""Account pools and platform pools: amounts and shares."""

from __future__ import annotations

from typing import Any

from budgets import selectors
from budgets import services as promises
from budgets.models import PoolShare, User
from portal.api.paging import SLUG
from portal.api.serializers import fleet as shapes
from portal.api.serializers.base import ReasonInput
from portal.api.views.base import DONE, MADE, View, deed, pages, shows


class PoolsView(View):
    """Pools that the caller's accounts have or draw on."""

    post = deed(promises.create_pool, shapes.PoolSerializer, takes=shapes.PoolInput, code=MADE)

    @pages(shapes.PoolSerializer, SLUG)
    def get(self, user: User) -> Any:
        return selectors.visible_pools(user)


class PoolPart(View):
    """A part of one pool that this user may see; after a deed the pool is read again."""

    def found(self, user: User, slug: str) -> dict[str, Any]:
        return {"pool": selectors.visible_pools(user).get(slug=slug)}

    def shown(self, user: User, made: Any, slug: str) -> Any:
        return self.found(user, slug)["pool"]


class PoolView(PoolPart):
    """One pool."""

    get = shows(shapes.PoolSerializer)


class ArchivePoolView(PoolPart):
    """Puts a pool away; its accounts draw on nothing from now on."""

    post = deed(promises.archive_pool, None, takes=ReasonInput, code=DONE)


class PoolAmountsView(PoolPart):
    """GPUs of a flavor in a pool, from now or later."""

    post = deed(
        promises.set_pool_amount, shapes.PoolSerializer, takes=shapes.PoolAmountInput, code=MADE
    )


class PoolSharesView(PoolPart):
    """Accounts that draw on a platform pool."""

    put = deed(promises.set_pool_share, shapes.PoolSerializer, takes=shapes.PoolShareInput)


class PoolShareView(View):
    """One account's share."""

    delete = deed(promises.remove_pool_share, None, code=DONE)

    def found(self, user: User, slug: str, account: str) -> dict[str, Any]:
        pool = selectors.visible_pools(user).get(slug=slug)
        # Only the shares that this user sees are on the pool.
        share = next((row for row in pool.shares.all() if row.account.slug == account), None)
        if share is None:
            raise PoolShare.DoesNotExist
        return {"share": share}
