"""OpenID Connect with the company's provider: the code flow with PKCE, state and nonce, by Authlib.

Discovery and keys are read anew at each sign-in: a key that the provider has taken back opens
nothing, and a new one is known at once. What a provider answers is checked here once more than the
library does: that it is the issuer of the settings, that it signs with a key of its own, and that
the token is for the portal.

An answer is bounded in bytes and in time, and leads nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from typing import Any, Final
from unicodedata import category

import structlog
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.django_client import DjangoIntegration, DjangoOAuth2App
from authlib.integrations.requests_client import OAuth2Session
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from joserfc.errors import JoseError
from requests import ConnectionError as NoConnection
from requests import PreparedRequest, RequestException, Response
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse
from urllib3.exceptions import HTTPError

from budgets import timed
from budgets.models import Identity
from budgets.services.company import Vouched
from portal.providers import Provider

log = structlog.stdlib.get_logger(__name__)

_TIMEOUT_S: Final = 5
_WHOLE_S: Final = 10
"""For a whole answer, however slowly its bytes come."""
_LIMIT: Final = 1024 * 1024
"""Bytes of an answer: a document, keys, a token, what it tells of a person."""
LEEWAY_S: Final = 60
"""How far the clocks of provider and portal may be apart."""
_ALGORITHMS: Final = "id_token_signing_alg_values_supported"
# With a key that the provider alone has; neither none nor a secret that is shared.
SIGNATURES: Final = frozenset(
    f"{family}{bits}" for family in ("RS", "PS", "ES") for bits in (256, 384, 512)
) | {"EdDSA"}
_ENDPOINTS: Final = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_END: Final = "end_session_endpoint"
_MORE: Final = "userinfo_endpoint"
_LONGEST_NAME: Final = 150
_LONGEST_EMAIL: Final = 254
_LONGEST_GROUP: Final = 200


class Unreachable(Exception):
    """The provider does not answer, or answers with an error of its own."""


class Refused(Exception):
    """What the provider, or whoever came back from it, says does not hold; in words for the log."""


def begin(request: HttpRequest, provider: Provider, *, back: str) -> HttpResponseBase:
    """Send somebody to the provider; state, nonce and verifier stay in their session.

    Args:
        request: Of the browser that is sent.
        provider: Where to.
        back: Address of the portal to which the provider sends them back.

    Raises:
        Unreachable: It does not answer.
        Refused: Its discovery document is not that of the settings.
    """
    with _heard(provider):
        answer: HttpResponseBase = _client(provider).authorize_redirect(request, back)
        return answer


def finish(request: HttpRequest, provider: Provider) -> tuple[Vouched, str]:
    """Who came back from the provider, and the token that says so.

    Raises:
        Unreachable: It does not answer.
        Refused: State, code, signature, issuer, audience, nonce or time is wrong.
    """
    # One provider's answer is not taken to another (RFC 9207).
    if request.GET.get("iss", provider.issuer) != provider.issuer:
        raise Refused("the answer is of another issuer")
    with _heard(provider):
        client = _client(provider)
        answer = client.authorize_access_token(
            request,
            claims_options={
                "iss": {"essential": True, "value": provider.issuer},
                "aud": {"essential": True, "value": provider.client_id},
                "sub": {"essential": True},
            },
            leeway=LEEWAY_S,
        )
        claims = answer["userinfo"]
        if client.server_metadata.get(_MORE):
            # Many providers tell names and groups there alone.
            more = client.userinfo(token=answer)
            if more["sub"] != claims["sub"]:
                raise Refused("what it tells of the person is of another one")
            claims = {**more, **claims}
        return _vouched(provider, claims), answer["id_token"]


def end_address(provider: Provider, *, id_token: str, back: str) -> str | None:
    """Where a session at the provider is ended; None where it has no such page.

    Raises:
        Unreachable: It does not answer.
        Refused: Its discovery document is not that of the settings.
    """
    with _heard(provider):
        client = _client(provider)
        if not provider.is_fit(client.server_metadata.get(_END, "")):
            return None
        told = client.create_logout_url(
            post_logout_redirect_uri=back, id_token_hint=id_token, client_id=provider.client_id
        )
        return str(told["url"])


def signing_keys(provider: Provider) -> list[dict[str, Any]]:
    """The public keys that the provider signs with now, as JSON Web Keys.

    Raises:
        Unreachable: It does not answer.
        Refused: Its documents are not what they have to be.
    """
    with _heard(provider):
        keys = _client(provider).fetch_jwk_set(force=True)["keys"]
        # A shared secret among them signs nothing here, and a key to encrypt with neither.
        return [key for key in keys if key["kty"] != "oct" and key.get("use", "sig") == "sig"]


class _Bounded(HTTPAdapter):
    """One question to a provider: its answer is plain, whole, small and in time."""

    def add_headers(self, request: PreparedRequest, **_: Any) -> None:
        request.headers["Accept-Encoding"] = "identity"

    def get_connection_with_tls_context(self, *arguments: Any, **more: Any) -> Any:
        pool = super().get_connection_with_tls_context(*arguments, **more)

        class Timed(pool.ConnectionCls):  # type: ignore[name-defined, misc]  # of http or of https
            response_class = timed.TimedResponse

        pool.ConnectionCls = Timed
        return pool

    def send(self, *arguments: Any, **more: Any) -> Response:
        timed.begin(_WHOLE_S)
        try:
            return super().send(*arguments, **more)
        except (HTTPError, OSError) as error:
            if isinstance(error, RequestException):
                raise
            raise NoConnection(error) from error
        finally:
            timed.end()

    def build_response(self, req: PreparedRequest, resp: Any) -> Response:
        with resp:
            if 300 <= resp.status < 400:
                raise Refused("it sends the portal elsewhere instead of answering")
            if resp.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
                raise Refused("its answer is compressed, unasked")
            body = bytearray()
            while piece := resp.read(_LIMIT + 1 - len(body), decode_content=False):
                body += piece
                if len(body) > _LIMIT:
                    raise Refused(f"its answer has more than {_LIMIT // 1024} KiB")
        read = HTTPResponse(
            BytesIO(body), resp.headers, resp.status, reason=resp.reason, preload_content=False
        )
        return super().build_response(req, read)


class _Session(OAuth2Session):  # type: ignore[misc]  # authlib has no types
    """Asks one provider, each question by :class:`_Bounded`."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        for scheme in ("https://", "http://"):
            self.mount(scheme, _Bounded())


class _App(DjangoOAuth2App):  # type: ignore[misc]  # authlib has no types
    client_cls = _Session


def _client(provider: Provider) -> Any:
    """One that has read the discovery document just now."""
    client = _App(
        DjangoIntegration(provider.name),
        name=provider.name,
        client_id=provider.client_id,
        client_secret=provider.client_secret,
        server_metadata_url=f"{provider.issuer.rstrip('/')}/.well-known/openid-configuration",
        client_kwargs={
            "scope": provider.scopes,
            "code_challenge_method": "S256",
            "default_timeout": _TIMEOUT_S,
        },
    )
    told = client.load_server_metadata()
    if told.get("issuer") != provider.issuer:
        raise Refused("its discovery document is of another issuer")
    named = [*_ENDPOINTS, *({_MORE} & told.keys())]
    if unfit := [name for name in named if not provider.is_fit(told.get(name, ""))]:
        raise Refused(f"its discovery document names no https address for {', '.join(unfit)}")
    told[_ALGORITHMS] = [name for name in told.get(_ALGORITHMS, ()) if name in SIGNATURES]
    return client


@contextmanager
def _heard(provider: Provider) -> Iterator[None]:
    """What the library raises over an answer, as what it means."""
    try:
        with meant():
            yield
    except RequestException as error:
        log.warning("provider_unreachable", provider=provider.name, error=type(error).__name__)
        raise Unreachable from error


@contextmanager
def meant() -> Iterator[None]:
    """What the libraries raise over documents and tokens, as :class:`Refused`."""
    try:
        yield
    except RequestException:
        raise
    except (AuthlibBaseError, JoseError) as error:
        raise Refused(str(error)) from error
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as e:
        # Documents and tokens of a shape that none should have.
        raise Refused(f"{type(e).__name__}: {e}") from e


def _vouched(provider: Provider, claims: Mapping[str, Any]) -> Vouched:
    """Claims, cut to what a row here takes; groups of another shape than a list are none."""
    groups = claims.get(provider.groups)
    is_read = claims.get("email_verified", True) is True
    return Vouched(
        provider=provider.name,
        issuer=provider.issuer,
        subject=_subject(claims["sub"]),
        username=_text(claims.get(provider.username) or claims["sub"]),
        email=_email(claims.get("email")) if is_read else "",
        first_name=_text(claims.get("given_name")),
        last_name=_text(claims.get("family_name")),
        groups=frozenset(
            group
            for group in (groups if isinstance(groups, list) else ())
            if isinstance(group, str) and 0 < len(group) <= _LONGEST_GROUP and "\0" not in group
            # Whatever people call their groups, none of them makes a machine of a person.
            if not group.startswith(Identity.MACHINE)
        ),
    )


def _subject(claim: object) -> str:
    if not isinstance(claim, str) or not 0 < len(claim) <= 255 or not claim.isascii():
        raise ValueError("the subject is not an ASCII text of 1 to 255 characters")
    return claim


def _text(claim: object) -> str:
    text = claim if isinstance(claim, str) else ""
    return "".join(letter for letter in text if category(letter)[0] not in "CZ" or letter == " ")[
        :_LONGEST_NAME
    ].strip()


def _email(claim: object) -> str:
    text = claim if isinstance(claim, str) and len(claim) <= _LONGEST_EMAIL else ""
    try:
        validate_email(text)
    except ValidationError:
        return ""
    return text
