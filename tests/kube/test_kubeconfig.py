"""What a pasted kubeconfig may hold, and what each refusal says."""

from __future__ import annotations

import base64
import datetime as dt
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from clusters.errors import KubeconfigRejected
from clusters.kube import transport
from clusters.kube.kubeconfig import Connection, choose, connection_of, facts_of, parse

ENDS = dt.datetime(2031, 5, 6, 7, 8, 9, tzinfo=dt.UTC)


def certificate_and_key() -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "portal-robot")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    builder = builder.public_key(key.public_key()).serial_number(1)
    builder = builder.not_valid_before(ENDS - dt.timedelta(days=900)).not_valid_after(ENDS)
    certificate = builder.sign(key, hashes.SHA256())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate.public_bytes(Encoding.PEM).decode(), private.decode()


CERTIFICATE, KEY = certificate_and_key()


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def kubeconfig(
    cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **more: Any
) -> str:
    base = {"server": "https://10.0.0.1:6443", "certificate-authority-data": encoded(CERTIFICATE)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {**base, **(cluster or {})}}],
        "users": [{"name": "u", "user": {"token": "t0ken"} if user is None else user}],
        "contexts": [{"name": "ctx", "context": {"cluster": "c", "user": "u"}}],
        **more,
    }
    return yaml.safe_dump(document)


def fields_of(text: str, context: str = "") -> set[str]:
    with pytest.raises(KubeconfigRejected) as caught:
        choose(text, context=context)
    assert all(len(fault.message) > 20 for fault in caught.value.fields)
    return {fault.field for fault in caught.value.fields}


@pytest.mark.parametrize(
    ("cluster", "user", "want"),
    [
        pytest.param({}, {"exec": {"command": "aws"}}, "user.exec", id="exec plugin"),
        pytest.param(
            {}, {"auth-provider": {"name": "gcp"}}, "user.auth-provider", id="auth provider"
        ),
        pytest.param(
            {}, {"client-certificate": "/etc/c"}, "user.client-certificate", id="certificate file"
        ),
        pytest.param({}, {"client-key": "/etc/k"}, "user.client-key", id="key file"),
        pytest.param({}, {"tokenFile": "/etc/shadow"}, "user.tokenFile", id="token file"),
        pytest.param({}, {"username": "a", "password": "b"}, "user.password", id="basic auth"),
        pytest.param({}, {"token": "t", "as": "root"}, "user.as", id="impersonation"),
        pytest.param({}, {}, "user", id="no credential"),
        pytest.param({}, {"token": "two words"}, "user.token", id="token of two words"),
        pytest.param(
            {},
            {"client-certificate-data": encoded(CERTIFICATE)},
            "user",
            id="certificate without key",
        ),
        pytest.param(
            {},
            {"client-certificate-data": "!!", "client-key-data": encoded(KEY)},
            "user.client-certificate-data",
            id="certificate that is none",
        ),
        pytest.param(
            {},
            {"client-certificate-data": encoded(CERTIFICATE), "client-key-data": "é"},
            "user.client-key-data",
            id="key in letters that base64 lacks",
        ),
        pytest.param(
            {"certificate-authority": "/etc/ca"},
            None,
            "cluster.certificate-authority",
            id="CA file",
        ),
        pytest.param(
            {"certificate-authority-data": "AAAA"},
            None,
            "cluster.certificate-authority-data",
            id="CA that is none",
        ),
        pytest.param(
            {"insecure-skip-tls-verify": True},
            None,
            "cluster.insecure-skip-tls-verify",
            id="no TLS check",
        ),
        pytest.param({"proxy-url": "http://p"}, None, "cluster.proxy-url", id="proxy"),
        pytest.param({"server": "http://10.0.0.1"}, None, "cluster.server", id="plain HTTP"),
        pytest.param(
            {"server": "http://localhost.evil.example"},
            None,
            "cluster.server",
            id="plain HTTP, looks like loopback",
        ),
        pytest.param(
            {"server": "https://u:p@10.0.0.1"}, None, "cluster.server", id="password in the address"
        ),
        pytest.param({"server": ""}, None, "cluster.server", id="no server"),
        pytest.param({"server": "unix:///run/x"}, None, "cluster.server", id="not http"),
        pytest.param(
            {"server": "https://h:99999999"}, None, "cluster.server", id="impossible port"
        ),
    ],
)
def test_kubeconfig_refuses(
    cluster: dict[str, Any], user: dict[str, Any] | None, want: str
) -> None:
    assert want in fields_of(kubeconfig(cluster, user))


def test_kubeconfig_tells_all_faults_at_once() -> None:
    text = kubeconfig(
        {"insecure-skip-tls-verify": True, "proxy-url": "x", "server": "http://far.example"},
        {"exec": {}, "tokenFile": "/x"} | {"exec": {"command": "x"}},
    )
    assert fields_of(text) == {
        "cluster.insecure-skip-tls-verify",
        "cluster.proxy-url",
        "cluster.server",
        "user.exec",
        "user.tokenFile",
    }


@pytest.mark.parametrize("server", ["http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1"])
def test_kubeconfig_allows_plain_http_on_loopback(server: str) -> None:
    assert connection_of(kubeconfig({"server": server})).server == server


def test_choose_needs_a_context_when_there_are_several() -> None:
    contexts = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("one", "two")]
    text = kubeconfig(contexts=contexts)
    assert parse(text).names == ("one", "two")
    assert fields_of(text) == {"current-context"}
    assert fields_of(text, "three") == {"current-context"}
    assert yaml.safe_load(choose(text, context="two"))["current-context"] == "two"


def test_choose_keeps_only_what_is_needed() -> None:
    users = [
        {"name": "u", "user": {"token": "t0ken", "extensions": ["x"]}},
        {"name": "other", "user": {"token": "someone-elses", "exec": {"command": "x"}}},
    ]
    chosen = choose(kubeconfig({"extensions": ["x"]}, users=users))
    document = yaml.safe_load(chosen)
    assert "someone-elses" not in chosen
    assert set(document["clusters"][0]["cluster"]) == {"server", "certificate-authority-data"}
    assert [entry["user"] for entry in document["users"]] == [{"token": "t0ken"}]
    assert choose(chosen) == chosen


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("- a\n- b", id="a list"),
        pytest.param("kind: Secret", id="another kind"),
        pytest.param("kind: Config", id="no context"),
        pytest.param("a: [b: {", id="not YAML"),
        pytest.param("!!python/object/apply:os.system ['true']", id="YAML that runs code"),
        pytest.param(kubeconfig() + "#" * 300_000, id="too long"),
    ],
)
def test_parse_refuses_what_is_no_kubeconfig(text: str) -> None:
    with pytest.raises(KubeconfigRejected) as caught:
        parse(text)
    assert caught.value.fields


def test_parse_error_does_not_quote_the_text() -> None:
    with pytest.raises(KubeconfigRejected) as caught:
        parse("token: [s3cr3t-t0ken\n  : }")
    assert "s3cr3t" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_facts_show_no_credential() -> None:
    user = {"client-certificate-data": encoded(CERTIFICATE), "client-key-data": encoded(KEY)}
    facts = facts_of(kubeconfig(user=user))
    assert facts.user_kind == "client certificate"
    assert facts.ends == ENDS
    assert len(facts.ca_fingerprint.split(":")) == 32
    assert facts.server == "https://10.0.0.1:6443"
    assert "t0ken" not in repr(facts_of(kubeconfig()))
    assert "t0ken" not in repr(parse(kubeconfig()))


def jwt(claims: str) -> str:
    """A token as ``kubectl create token`` prints it; nothing here looks at its signature."""
    parts = ('{"alg": "RS256"}', claims, "signature")
    return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)


@pytest.mark.parametrize(
    ("token", "ends"),
    [
        pytest.param(jwt(f'{{"exp": {int(ENDS.timestamp())}}}'), ENDS, id="it says"),
        pytest.param(jwt('{"sub": "portal"}'), None, id="it does not say"),
        pytest.param(jwt('{"exp": "soon"}'), None, id="no number"),
        pytest.param(jwt('{"exp": 1e300}'), None, id="beyond every calendar"),
        pytest.param(jwt("[]"), None, id="no object"),
        pytest.param(jwt("[" * 10_000), None, id="nested"),
        pytest.param("s3cr3t-t0ken", None, id="no JWT"),
        pytest.param("a.b.c", None, id="no base64"),
    ],
)
def test_facts_say_when_a_token_ends(token: str, ends: dt.datetime | None) -> None:
    assert facts_of(kubeconfig(user={"token": token})).ends == ends


def test_client_key_lies_on_disk_only_while_it_loads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []
    real = transport.ssl.SSLContext.load_cert_chain

    def watching(context: Any, certificate: Path, key: Path) -> None:
        seen.append((stat.S_IMODE(key.stat().st_mode), stat.S_IMODE(key.parent.stat().st_mode)))
        real(context, certificate, key)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(transport.ssl.SSLContext, "load_cert_chain", watching)
    transport.tls_context(Connection("https://a", CERTIFICATE, "", CERTIFICATE, KEY))
    assert seen == [(0o600, 0o700)]
    assert list(tmp_path.iterdir()) == []


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    made = transport.Transport(Connection("https://10.0.0.1", CERTIFICATE, "t"))
    assert made._pool.proxy is None
    made.close()
