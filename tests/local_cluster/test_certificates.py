"""Certificates: who signs whom, for what, under which name."""

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from e2e.cluster.certificates import CA, FRONT_PROXY_CA, PLAN, SERVICE_ACCOUNT_KEY, Certificate, issue


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificates") / "pki"
    issue(made)
    return made


def load(folder: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes())


@pytest.mark.parametrize("planned", PLAN, ids=lambda planned: planned.name)
def test_issued_as_planned(folder: Path, planned: Certificate) -> None:
    certificate = load(folder, planned.name)
    certificate.verify_directly_issued_by(load(folder, planned.issuer))
    names = [f"CN={planned.common_name}", *(f"O={group}" for group in planned.organizations)]
    assert sorted(certificate.subject.rfc4514_string().split(",")) == sorted(names)
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    expected = ExtendedKeyUsageOID.SERVER_AUTH if planned.hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    assert list(usage) == [expected]


def test_server_answers_to_names_and_addresses(folder: Path) -> None:
    extension = load(folder, "apiserver").extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert "kubernetes.default.svc" in extension.value.get_values_for_type(x509.DNSName)
    addresses = {str(address) for address in extension.value.get_values_for_type(x509.IPAddress)}
    assert addresses == {"127.0.0.1", "10.96.0.1"}


def test_the_front_proxy_has_an_authority_of_its_own() -> None:
    assert [planned.name for planned in PLAN if planned.issuer == FRONT_PROXY_CA] == ["front-proxy-client"]


def test_only_the_owner_reads_keys(folder: Path) -> None:
    keys = list(folder.glob("*.key"))
    assert {key.stem for key in keys} == {
        CA,
        FRONT_PROXY_CA,
        SERVICE_ACCOUNT_KEY,
        *(planned.name for planned in PLAN),
    }
    assert {key.stat().st_mode & 0o777 for key in keys} == {0o600}
