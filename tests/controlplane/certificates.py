"""Short-lived certificates of one control plane: its own authority, a server's and a client's.

Elliptic curve keys, because making RSA keys would cost more than starting an API server.
"""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID = datetime.timedelta(days=30)
_SKEW = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM, and the files that hold them."""

    certificate: Path
    key: Path

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.read_bytes()


class Authority:
    """A certificate authority that signs for one folder of files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("controlplane-ca")
        builder = _builder(self._name, self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.pair = self._write("ca", builder.sign(self._key, hashes.SHA256()), self._key)

    def server(self, name: str) -> KeyPair:
        """Sign a certificate for a server on 127.0.0.1 and localhost, files ``name.{crt,key}``."""
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return self._sign(name, _name(name), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def client(self, user: str, *, group: str) -> KeyPair:
        """Sign a client certificate that Kubernetes reads as this user in this group."""
        return self._sign(user, _name(user, group=group), ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def _sign(
        self,
        name: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        alternative_names: list[x509.GeneralName],
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self._name, key.public_key()).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if alternative_names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(alternative_names), critical=False
            )
        return self._write(name, builder.sign(self._key, hashes.SHA256()), key)

    def _write(
        self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
    ) -> KeyPair:
        pair = KeyPair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(pair.key, key)
        return pair


def write_signing_key(path: Path) -> None:
    """Write the RSA key that signs and verifies service account tokens."""
    _write_key(path, rsa.generate_private_key(public_exponent=65537, key_size=2048))


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def _name(common_name: str, *, group: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if group:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(parts)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _VALID)
    )
