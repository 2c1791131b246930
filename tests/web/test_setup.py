from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client

from budgets import services
from budgets.models import Account, AuditEntry, Envelope, Flavor, Membership, Pool, User, Workspace
from tests.builders import PASSWORD
from tests.web.conftest import Visitors


@pytest.fixture
def first_admin(db) -> Client:
    user = services.create_first_admin(username="ada", email="ada@example.org", password=PASSWORD)
    client = Client()
    client.force_login(user)
    return client


def post(client: Client, address: str, section: str, **values):
    return client.post(address, {"section": section, **values})


def test_empty_portal_leads_its_admin_from_step_to_step(first_admin: Client):
    assert "Set up the portal" in first_admin.get("/").content.decode()
    assert first_admin.get("/setup/").context["now"] == "flavors"

    flavor = {"slug": "h100", "name": "H100", "resource_name": "nvidia.com/gpu"}
    flavor |= {"gpus_per_node": 8, "node_labels": "gpu=h100\n", "clock_start": "Admitted"}
    flavor |= {"node_taints": "gpu=yes:NoSchedule", "tolerations": "gpu:NoSchedule"}
    flavor |= {"oversubscription_factor": "1.00", "position": 0}
    assert post(first_admin, "/setup/flavors/", "new", **flavor).status_code == 302
    made = Flavor.objects.get()
    assert made.node_labels == {"gpu": "h100"}
    assert made.node_taints == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    assert made.tolerations == [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert first_admin.get("/setup/").context["now"] == "capacity"

    services.set_capacity(None, cluster="gpu-east", flavor=made, gpus=32)
    post(first_admin, "/setup/accounts/", "new", slug="acme", name="Acme")
    envelope = {"flavor": "h100", "committed": 16, "ceiling": 32, "pool": 0}
    post(first_admin, "/setup/accounts/acme/", "envelope", **envelope)
    workspace = {"account": "acme", "slug": "vision", "name": "Vision", "home_flavor": "h100"}
    post(first_admin, "/setup/workspaces/", "new", **workspace)
    assert Envelope.objects.get().ceiling == 32
    assert Workspace.objects.get().namespace == "acme-vision"

    person = {"username": "olga", "email": "o@example.org", "password": "quite a long one 9"}
    post(first_admin, "/setup/people/", "new", **person)
    olga = User.objects.get(username="olga")
    role = {"role": "owner", "workspace": "acme-vision"}
    post(first_admin, f"/setup/people/{olga.pk}/", "roles", **role)
    assert first_admin.get("/setup/").context["now"] == "budgets"


def test_setup_leads_from_a_new_account_to_the_first_budget(visitors: Visitors):
    admin = visitors["admin"]

    def next_page(address: str, section: str, **values) -> str:
        answer = post(admin, address, section, **values)
        assert answer.status_code == 302, answer.content.decode()
        return answer["Location"]

    address = next_page("/setup/accounts/", "new", slug="initech", name="Initech")
    assert address == "/setup/accounts/initech/"
    assert '<li aria-current="step">Envelope</li>' in visitors.text("admin", address)
    envelope = {"flavor": "h100", "committed": 16, "ceiling": 32, "pool": 0}
    address = next_page(address, "envelope", **envelope)
    form = visitors["admin"].get(address).context["sections"][1].bound
    assert form["account"].value() == "initech"
    values = {"account": "initech", "slug": "lab", "name": "Lab", "home_flavor": "h100"}
    address = next_page(address, "new", **values)
    assert address == "/setup/workspaces/initech-lab/"
    address = next_page(address, "owners", user="olga")
    assert address == "/workspaces/initech-lab/budget/"
    assert Membership.objects.get(workspace__namespace="initech-lab").user.username == "olga"


def test_faults_stand_beside_their_fields_and_nothing_is_made(visitors: Visitors):
    answer = post(visitors["admin"], "/setup/accounts/", "new", slug="Not-A-Slug", name="")

    form = answer.context["sections"][1].bound
    assert answer.status_code == 422
    assert set(form.errors) == {"name"}
    answer = post(visitors["admin"], "/setup/accounts/", "new", slug="Not-A-Slug", name="X")
    assert "slug" in answer.context["sections"][1].bound.errors
    assert Account.objects.count() == 2


@pytest.mark.parametrize(
    ("field", "text"),
    [("node_labels", "no equals sign"), ("node_taints", "gpu=yes:Sometimes"), ("tolerations", "x")],
)
def test_a_flavor_with_unreadable_lines_is_refused(visitors: Visitors, field: str, text: str):
    values = {"name": "H100", "resource_name": "nvidia.com/gpu", "gpus_per_node": 8, "position": 0}
    values |= {"clock_start": "Admitted", "oversubscription_factor": "1", field: text}

    answer = post(visitors["admin"], "/setup/flavors/h100/", "edit", **values)

    assert set(answer.context["sections"][0].bound.errors) == {field}


def test_what_a_flavor_page_shows_can_be_saved_unchanged(visitors: Visitors):
    client = visitors["admin"]
    form = client.get("/setup/flavors/h100/").context["sections"][0].bound
    values = {name: form[name].value() for name in form.fields}
    before = Flavor.objects.filter(slug="h100").values().get()

    assert post(client, "/setup/flavors/h100/", "edit", **values).status_code == 302

    after = Flavor.objects.filter(slug="h100").values().get()
    assert {k: v for k, v in after.items() if k != "generation"} == {
        k: v for k, v in before.items() if k != "generation"
    }


def test_pool_gets_gpus_and_an_account_that_draws(visitors: Visitors):
    client = visitors["admin"]
    post(client, "/setup/pools/", "new", slug="reserve", name="Reserve", account="")
    post(client, "/setup/pools/reserve/", "amount", flavor="h100", gpus=8)
    post(client, "/setup/pools/reserve/", "share", account="acme", limits="h100=4")

    pool = Pool.objects.get()
    share = pool.shares.get()
    assert pool.amounts.get().gpus == 8
    assert share.limits == {"h100": 4}
    client.post("/setup/pools/reserve/", {"section": "share", "remove": share.pk})
    assert not pool.shares.exists()


@pytest.mark.parametrize("gpus", ["9" * 5_000, "9" * 4_000, "1000001", "-1", "1.5", "٣", ""])
def test_a_share_of_more_than_anybody_has_is_refused(visitors: Visitors, gpus: str):
    client = visitors["admin"]
    post(client, "/setup/pools/", "new", slug="reserve", name="Reserve", account="")
    answer = post(client, "/setup/pools/reserve/", "share", account="acme", limits=f"h100={gpus}")
    said = answer.content.decode()
    assert answer.status_code == 422 and "number of whole GPUs from 0 to 1,000,000" in said
    assert not Pool.objects.get().shares.exists()


def test_archive_asks_for_a_reason_and_is_refused_while_in_use(visitors: Visitors):
    client = visitors["admin"]

    assert post(client, "/setup/accounts/acme/", "archive", reason="").status_code == 422
    assert post(client, "/setup/accounts/acme/", "archive", reason="gone").status_code == 422
    address = "/setup/workspaces/globex-search/"
    assert post(client, address, "archive", reason="done").status_code == 302

    visitors.fleet.search.refresh_from_db()
    visitors.fleet.acme.refresh_from_db()
    assert visitors.fleet.search.archived_at is not None
    assert visitors.fleet.acme.archived_at is None
    assert client.get("/workspaces/globex-search/budget/").status_code == 200


def test_role_is_given_and_taken_but_never_the_last_admins(visitors: Visitors):
    client, admin = visitors["admin"], visitors.fleet.admin
    nora = User.objects.get(username="nora")
    address = f"/setup/people/{nora.pk}/"

    assert post(client, address, "roles", role="owner").status_code == 422
    post(client, address, "roles", role="viewer", account="acme")
    given = Membership.objects.get(user=nora)
    assert visitors["nobody"].get("/workspaces/acme-vision/").status_code == 200
    assert f'name="remove" value="{given.pk}"' in client.get(address).content.decode()
    client.post(address, {"section": "roles", "remove": given.pk})
    left = visitors["nobody"].get("/workspaces/acme-vision/")
    assert left["Location"].startswith("/login/"), "who lost a role signs in again"
    visitors["nobody"].force_login(User.objects.get(pk=nora.pk))
    assert visitors["nobody"].get("/workspaces/acme-vision/").status_code == 404

    last = Membership.objects.get(user=admin)
    refused = client.post(
        f"/setup/people/{admin.pk}/", {"section": "roles", "remove": last.pk}, follow=True
    )
    assert "This would leave the portal without" in refused.content.decode()
    assert Membership.objects.filter(pk=last.pk).exists()


def test_role_of_somebody_else_is_not_taken_through_ones_own_page(visitors: Visitors):
    vera = Membership.objects.get(user__username="vera")
    nora = User.objects.get(username="nora")

    answer = visitors["admin"].post(
        f"/setup/people/{nora.pk}/", {"section": "roles", "remove": vera.pk}
    )

    assert answer.status_code == 404
    assert Membership.objects.filter(pk=vera.pk).exists()


def test_unknown_section_is_not_there(visitors: Visitors):
    assert post(visitors["admin"], "/setup/accounts/", "nothing").status_code == 404
    assert Account.objects.count() == 2


def test_somebody_is_deactivated_and_let_in_again_on_their_page(visitors: Visitors):
    client, vera = visitors["admin"], User.objects.get(username="vera")
    address = f"/setup/people/{vera.pk}/"
    until = services.utc_now() + timedelta(days=1)
    _, text = services.create_api_token(
        vera, user=vera, name="laptop", scope="read", expires_at=until
    )
    assert text[:12] in client.get(address).content.decode()
    assert visitors["viewer"].get("/").status_code == 200

    assert post(client, address, "deactivate", reason="").status_code == 422
    post(client, address, "deactivate", reason="left the company")
    assert visitors["viewer"].get("/")["Location"].startswith("/login/")
    assert services.authenticate_api_token(text) is None
    page = client.get(address).content.decode()
    assert "Reactivate" in page and text[:12] not in page

    post(client, address, "reactivate", reason="came back")
    assert User.objects.get(pk=vera.pk).is_active
    actions = AuditEntry.objects.filter(subject="user:vera").order_by("pk")
    assert [entry.action for entry in actions][-2:] == ["user.deactivate", "user.reactivate"]


def test_admin_ends_a_token_of_somebody(visitors: Visitors):
    vera = User.objects.get(username="vera")
    until = services.utc_now() + timedelta(days=1)
    token, text = services.create_api_token(
        vera, user=vera, name="laptop", scope="read", expires_at=until
    )
    address = f"/setup/people/{vera.pk}/"
    visitors["admin"].post(address, {"section": "tokens", "remove": token.pk})
    assert services.authenticate_api_token(text) is None
    olga = visitors.fleet.owner
    other, theirs = services.create_api_token(
        olga, user=olga, name="laptop", scope="read", expires_at=until
    )
    visitors["admin"].post(address, {"section": "tokens", "remove": other.pk})
    assert services.authenticate_api_token(theirs) is not None
