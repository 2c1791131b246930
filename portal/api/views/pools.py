"""Account pools and platform pools: amounts and shares."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from budgets import selectors
from budgets import services as promises
from budgets.models import Pool, PoolShare
from portal.api.paging import SLUG, page
from portal.api.schema import PAGED, paged
from portal.api.serializers import fleet as shapes
from portal.api.serializers.base import ReasonInput
from portal.api.views.base import View, account_named, actor, checked, flavor_named

MADE = status.HTTP_201_CREATED


class PoolsView(View):
    """Pools that the caller's accounts have or draw on."""

    query = PAGED

    @extend_schema(responses=paged(shapes.PoolSerializer))
    def get(self, request: Request) -> Response:
        rows = selectors.visible_pools(actor(request))
        return page(request, rows, shapes.PoolSerializer, SLUG)

    @extend_schema(request=shapes.PoolInput, responses={201: shapes.PoolSerializer})
    def post(self, request: Request) -> Response:
        user = actor(request)
        given = checked(shapes.PoolInput, request)
        account = given.pop("account", None)
        made = promises.create_pool(
            user, **given, account=account_named(user, account) if account else None
        )
        return Response(shapes.PoolSerializer(made).data, status=MADE)


class PoolPart(View):
    """A part of one pool that this user may see."""

    def pool(self, request: Request, slug: str) -> Pool:
        return selectors.visible_pools(actor(request)).get(slug=slug)

    def answer(self, request: Request, slug: str, code: int = status.HTTP_200_OK) -> Response:
        return Response(shapes.PoolSerializer(self.pool(request, slug)).data, status=code)


class PoolView(PoolPart):
    """One pool."""

    @extend_schema(responses=shapes.PoolSerializer)
    def get(self, request: Request, slug: str) -> Response:
        return self.answer(request, slug)


class ArchivePoolView(PoolPart):
    """Puts a pool away; its accounts draw on nothing from now on."""

    @extend_schema(request=ReasonInput, responses={204: None})
    def post(self, request: Request, slug: str) -> Response:
        pool = self.pool(request, slug)
        reason = checked(ReasonInput, request)["reason"]
        promises.archive_pool(actor(request), pool=pool, reason=reason)
        return Response(status=status.HTTP_204_NO_CONTENT)


class PoolAmountsView(PoolPart):
    """GPUs of a flavor in a pool, from now or later."""

    @extend_schema(request=shapes.PoolAmountInput, responses={201: shapes.PoolSerializer})
    def post(self, request: Request, slug: str) -> Response:
        pool = self.pool(request, slug)
        given = checked(shapes.PoolAmountInput, request)
        given["flavor"] = flavor_named(actor(request), given["flavor"])
        promises.set_pool_amount(actor(request), pool=pool, **given)
        return self.answer(request, slug, MADE)


class PoolSharesView(PoolPart):
    """Accounts that draw on a platform pool."""

    @extend_schema(request=shapes.PoolShareInput, responses=shapes.PoolSerializer)
    def put(self, request: Request, slug: str) -> Response:
        user = actor(request)
        pool = self.pool(request, slug)
        given = checked(shapes.PoolShareInput, request)
        account = account_named(user, given["account"])
        promises.set_pool_share(user, pool=pool, account=account, limits=given["limits"])
        return self.answer(request, slug)


class PoolShareView(PoolPart):
    """One account's share."""

    @extend_schema(responses={204: None})
    def delete(self, request: Request, slug: str, account: str) -> Response:
        pool = self.pool(request, slug)
        # Only the shares that this user sees are on the pool.
        share = next((row for row in pool.shares.all() if row.account.slug == account), None)
        if share is None:
            raise PoolShare.DoesNotExist
        promises.remove_pool_share(actor(request), share=share)
        return Response(status=status.HTTP_204_NO_CONTENT)
