"""Who holds which certificate in a cluster, and how they are issued.

`PLAN` says it all: two authorities (one for the API, one for the front proxy, since whoever holds a front-proxy
certificate may act as anybody), one server, and a client for each program.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from e2e.cluster.node.names import NODE_IP, NODE_NAME

CA: Final = "ca"
FRONT_PROXY_CA: Final = "front-proxy-ca"
SERVICE_ACCOUNT_KEY: Final = "service-account"
SERVICE_IP: Final = "10.96.0.1"

_LIFETIME: Final = timedelta(days=365)
_CLOCK_SKEW: Final = timedelta(minutes=5)


@dataclass(frozen=True)
class Certificate:
    """A certificate that is to be issued.

    Attributes:
        name: Its files are `<name>.crt` and `<name>.key`.
        common_name: For a client, the user name that RBAC sees.
        issuer: Name of the authority that signs it.
        organizations: For a client, the groups that RBAC sees.
        hosts: For a server, the names and addresses that it answers to; empty for a client.
    """

    name: str
    common_name: str
    issuer: str = CA
    organizations: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


PLAN: Final = (
    Certificate(
        "apiserver",
        "kube-apiserver",
        hosts=(
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "127.0.0.1",
            SERVICE_IP,
        ),
    ),
    Certificate("admin", "admin", organizations=("system:masters",)),
    Certificate("controller-manager", "system:kube-controller-manager"),
    Certificate("scheduler", "system:kube-scheduler"),
    # KWOK plays every node's kubelet, which no role of Kubernetes allows.
    Certificate("kwok", "kwok", organizations=("system:masters",)),
    Certificate("front-proxy-client", "front-proxy-client", issuer=FRONT_PROXY_CA),
)

_NODE_USER: Final = f"system:node:{NODE_NAME}"

REAL_NODE_PLAN: Final = (
    *(replace(each, hosts=(*each.hosts, NODE_IP)) if each.name == "apiserver" else each for each in PLAN),
    # Logs and commands in pods: the API server asks the kubelet.
    Certificate("kubelet-client", "kube-apiserver-kubelet-client", organizations=("system:masters",)),
    Certificate("kubelet-server", _NODE_USER, hosts=(NODE_IP,)),
    Certificate("kubelet", _NODE_USER, organizations=("system:nodes",)),
    Certificate("kube-proxy", "system:kube-proxy"),
    Certificate("coredns", "system:coredns"),
)
"""What a cluster with a real node needs."""


def issue(folder: Path, plan: Iterable[Certificate] = PLAN) -> None:
    """Write the authorities, all planned certificates and the service account key pair.

    Args:
        folder: Where the PEM files go; it is made if it does not exist. Keys are readable by the owner only.
        plan: What to issue.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authorities = {name: _authority(folder, name) for name in (CA, FRONT_PROXY_CA)}
    for certificate in plan:
        key = _new_key(folder / f"{certificate.name}.key")
        issuer, issuer_key = authorities[certificate.issuer]
        _write(folder / f"{certificate.name}.crt", _sign(certificate, key, issuer, issuer_key))
    key = _new_key(folder / f"{SERVICE_ACCOUNT_KEY}.key")
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (folder / f"{SERVICE_ACCOUNT_KEY}.pub").write_bytes(public)


def _authority(folder: Path, name: str) -> tuple[x509.Name, ec.EllipticCurvePrivateKey]:
    key = _new_key(folder / f"{name}.key")
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"disagg-local-{name}")])
    certificate = (
        _builder(subject, subject, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write(folder / f"{name}.crt", certificate)
    return subject, key


def _sign(
    certificate: Certificate,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    names = [x509.NameAttribute(NameOID.COMMON_NAME, certificate.common_name)]
    names += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in certificate.organizations]
    usage = ExtendedKeyUsageOID.SERVER_AUTH if certificate.hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = (
        _builder(x509.Name(names), issuer, key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(authority, critical=False)
    )
    if certificate.hosts:
        alternatives = x509.SubjectAlternativeName([_general_name(host) for host in certificate.hosts])
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _new_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return key


def _write(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
