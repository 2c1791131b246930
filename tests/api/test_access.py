"""Login, tokens, scopes, sessions, users."""

from __future__ import annotations

from datetime import timedelta

import pytest
import time_machine
from django.core.cache import cache
from rest_framework.test import APIClient

from budgets import services
from budgets.models import Account, ApiToken, AuditEntry, User
from portal.signin import LoginThrottle
from tests.api.conftest import API, client_of
from tests.builders import PASSWORD


def login(client: APIClient, password: str = PASSWORD, **more):
    body = {"username": "olga", "password": password, **more}
    return client.post(API + "login", body, format="json")


def test_login_gives_a_token_that_works_until_it_is_revoked(people):
    answer = login(APIClient(), scope="write", name="laptop")
    assert answer.status_code == 201
    assert answer.headers["Cache-Control"] == "no-store"
    text = answer.json()["token"]
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {text}")
    me = client.get(API + "me").json()
    assert (me["username"], me["scope"]) == ("olga", "write")
    assert me["roles"] == [{"role": "owner", "account": None, "workspace": "acme-vision"}]
    assert client.delete(f"{API}tokens/{answer.json()['id']}").status_code == 204
    assert client.get(API + "me").status_code == 401


def test_tokens_are_listed_without_their_text_and_only_ones_own(people):
    text = login(APIClient()).json()["token"]
    client_of(people.fleet.admin)
    listing = people.send("owner", "GET", "tokens")
    assert text not in listing.content.decode()
    assert ApiToken.objects.get(name="login").digest not in listing.content.decode()
    assert [row["name"] for row in listing.json()["results"]] == ["test", "login"]
    other = ApiToken.objects.get(name="login")
    assert people.send("admin", "DELETE", f"tokens/{other.pk}").status_code == 404


@pytest.mark.parametrize(
    "header", ["Token", "Token a b", "Token gbp_wrong", "token \xff", "Token é"]
)
def test_bad_token_is_401_with_the_way_to_authenticate(people, header):
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=header)
    answer = client.get(API + "me")
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Token"
    assert answer.json()["code"] == "authentication_failed"


def test_expired_token_and_switched_off_user_are_refused(people):
    client = client_of(people.fleet.owner)
    with time_machine.travel(services.utc_now() + timedelta(days=2)):
        assert client.get(API + "me").status_code == 401
    assert client.get(API + "me").status_code == 200
    User.objects.filter(username="olga").update(is_active=False)
    assert client.get(API + "me").status_code == 401
    assert login(APIClient()).status_code == 401


def test_read_only_token_reads_and_previews_but_writes_nothing(people):
    client = client_of(people.fleet.admin, scope="read")
    assert client.get(API + "accounts").status_code == 200
    draft = {"lines": [{"flavor": "h100", "committed": 8, "ceiling": 8}]}
    path = API + "workspaces/acme-vision/budget/"
    assert client.post(path + "preview", draft, format="json").status_code == 200
    refused = client.post(API + "accounts", {"slug": "new", "name": "New"}, format="json")
    assert refused.status_code == 403
    assert "may only read" in refused.json()["message"]
    assert not Account.objects.filter(slug="new").exists()


def test_session_writes_only_with_its_csrf_token(people):
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(people.fleet.admin)
    assert client.get(API + "me").json()["scope"] == "session"
    body = {"slug": "new", "name": "New"}
    assert client.post(API + "accounts", body, format="json").status_code == 403
    assert not Account.objects.filter(slug="new").exists()


@pytest.mark.usefixtures("at_one_moment")
def test_login_attempts_are_limited_per_address_whatever_a_client_claims(people, monkeypatch):
    monkeypatch.setattr(LoginThrottle, "rate", "3/min", raising=False)
    cache.clear()
    codes = [
        APIClient()
        .post(
            API + "login",
            {"username": "olga", "password": "wrong"},
            format="json",
            HTTP_X_FORWARDED_FOR=f"10.0.0.{attempt}",
        )
        .status_code
        for attempt in range(4)
    ]
    assert codes == [401, 401, 401, 429]
    refused = login(APIClient())
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) > 0
    assert not ApiToken.objects.filter(name="login").exists()


def test_password_keeps_its_spaces(people):
    services.set_password(None, user=people.fleet.owner, password="  spaces matter here ")
    assert login(APIClient(), password="  spaces matter here ").status_code == 201
    assert login(APIClient(), password="spaces matter here").status_code == 401


def test_admin_adds_a_person_with_a_role_and_a_password(people):
    body = {"username": "mia", "email": "mia@example.org", "password": "some good words 7"}
    made = people.send("admin", "POST", "users", body)
    assert made.status_code == 201
    assert "password" not in made.json()
    role = {"username": "mia", "role": "owner", "workspace": "acme-speech"}
    member = people.send("admin", "POST", "members", role)
    assert member.status_code == 201
    mia = client_of(User.objects.get(username="mia"))
    names = [row["namespace"] for row in mia.get(API + "workspaces").json()["results"]]
    assert names == ["acme-speech"]
    gone = people.send("admin", "DELETE", f"members/{member.json()['id']}")
    assert gone.status_code == 204
    assert mia.get(API + "workspaces").status_code == 401
    again = client_of(User.objects.get(username="mia"))
    assert again.get(API + "workspaces").json()["results"] == []
    changed = people.send("admin", "PUT", "users/mia/password", {"password": "other good words 8"})
    assert changed.status_code == 204
    assert User.objects.get(username="mia").check_password("other good words 8")


def test_weak_password_and_taken_name_are_told_together(people):
    body = {"username": "olga", "email": "nonsense", "password": "short"}
    answer = people.send("admin", "POST", "users", body)
    assert answer.status_code == 422
    assert {"username", "email", "password"} <= {f["field"] for f in answer.json()["faults"]}


def test_ones_own_password_is_not_changed_with_a_token(people):
    answer = people.send("admin", "PUT", "users/ada/password", {"password": "some good words 7"})
    assert answer.status_code == 403
    assert User.objects.get(username="ada").check_password(PASSWORD)
    missing = people.send("admin", "PUT", "users/nix/password", {"password": "some good words 7"})
    assert missing.status_code == 404


def test_last_admin_stays(people):
    rows = people.send("admin", "GET", "members?role=admin").json()["results"]
    answer = people.send("admin", "DELETE", f"members/{rows[0]['id']}")
    assert answer.status_code == 422
    assert answer.json()["faults"][0]["code"] == "last_admin"


def test_every_write_is_in_the_audit_log_with_its_author(people):
    people.send("admin", "PATCH", "accounts/acme", {"name": "Acme 2"})
    entry = AuditEntry.objects.order_by("-pk").first()
    assert (entry.actor_name, entry.action) == ("ada", "account.edit")
    seen = people.send("admin", "GET", "audit?action=account.&limit=1").json()["results"]
    assert [row["after"] for row in seen] == [{"name": "Acme 2"}]


def test_user_names_cannot_be_guessed_by_giving_roles(people):
    known = people.send("owner", "POST", "members", {"username": "ada", "role": "admin"})
    unknown = people.send("owner", "POST", "members", {"username": "zzz", "role": "admin"})
    assert known.status_code == unknown.status_code == 403
    assert known.json() == unknown.json()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("post", "users", {"username": "mia", "email": "mia@example.org"}),
        ("put", "users/olga/password", {"password": "other good words 8"}),
        ("post", "users/olga/deactivate", {"reason": "left"}),
        ("post", "users/olga/reactivate", {"reason": "back"}),
        ("post", "users/olga/remove-second-factor", {"reason": "lost"}),
        ("delete", "users/olga/tokens/1", None),
        ("post", "members", {"username": "olga", "role": "finance"}),
        ("delete", "members/1", None),
        ("post", "group-rules", {"provider": "corp", "group": "g", "role": "finance"}),
        ("delete", "group-rules/1", None),
    ],
)
def test_identity_is_never_managed_with_a_token(people, method, path, body):
    before = AuditEntry.objects.count()
    people["admin"]
    answer = getattr(people["admin"], method)(API + path, body, format="json")
    assert answer.status_code == 403
    assert "browser session" in answer.json()["message"]
    assert AuditEntry.objects.count() == before + 1  # the token that was made for the test


def test_admin_sees_and_ends_somebodys_tokens(people):
    people["owner"]
    (row,) = people.send("admin", "GET", "users/olga/tokens").json()["results"]
    assert "digest" not in row and "token" not in row
    assert people.send("admin", "DELETE", f"users/olga/tokens/{row['id']}").status_code == 204
    assert people.send("owner", "GET", "me").status_code == 401
    other = ApiToken.objects.get(user=people.fleet.admin)
    assert people.send("admin", "DELETE", f"users/olga/tokens/{other.pk}").status_code == 404


def test_deactivated_person_is_out_at_once_and_comes_back_with_nothing_open(people):
    people["owner"]
    browser = people.in_session("owner")
    assert browser.get(API + "me").status_code == 200
    answer = people.send("admin", "POST", "users/olga/deactivate", {"reason": "left"})
    assert answer.json()["is_active"] is False
    assert browser.get(API + "me").status_code in (401, 403)
    assert people.send("owner", "GET", "me").status_code == 401
    assert login(APIClient()).status_code == 401
    people.send("admin", "POST", "users/olga/reactivate", {"reason": "came back"})
    assert browser.get(API + "me").status_code in (401, 403)
    assert people.send("owner", "GET", "me").status_code == 401
    assert login(APIClient()).status_code == 201
