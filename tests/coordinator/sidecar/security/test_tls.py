"""The TLS context for clients: its requirements, and the files that it refuses."""

import ssl
import subprocess
from pathlib import Path

import pytest

from muster.coordinator.settings.sidecar_tls import BadTls, client_context
from muster.events.kafka.tls_files import NamedFile
from tests.brokers.certificates import Authority, Issued


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Issued:
    return authority.issue("server")


def shake_hands(serving: ssl.SSLContext, client: ssl.SSLContext) -> str | None:
    """The TLS version that both agree on, in memory. Raises what either end raises."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_end = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    server_end = serving.wrap_bio(to_server, to_client, server_side=True)
    for end in (client_end, server_end, client_end, server_end):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return server_end.version()


def client_of(authority: Authority, issued: Issued | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.certificate)
    if issued is not None:
        context.load_cert_chain(issued.certificate, issued.key)
    return context


def named(certificate: Path, key: Path) -> tuple[NamedFile, NamedFile]:
    return ("--tls-certificate", certificate), ("--tls-key", key)


def refused(certificate: Path, key: Path, client_ca: Path | None = None) -> str:
    with pytest.raises(BadTls) as bad:
        client_context(*named(certificate, key), None if client_ca is None else ("--tls-client-ca", client_ca))
    assert "\n" not in str(bad.value)
    return str(bad.value)


def test_clients_that_trust_the_authority_get_in(authority: Authority, server: Issued) -> None:
    """From TLS 1.2 on."""
    serving = client_context(*named(server.certificate, server.key), None)
    client = client_of(authority)
    assert shake_hands(serving, client) == "TLSv1.3"
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert shake_hands(serving, client) == "TLSv1.2"
    assert serving.minimum_version is ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        shake_hands(serving, ssl.create_default_context())


def test_with_an_authority_for_clients_each_needs_a_certificate(
    authority: Authority, server: Issued, tmp_path: Path
) -> None:
    """One that this authority has signed."""
    serving = client_context(*named(server.certificate, server.key), ("--tls-client-ca", authority.certificate))
    assert shake_hands(serving, client_of(authority, authority.issue("alice"))) == "TLSv1.3"
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        shake_hands(serving, client_of(authority))
    stranger = Authority(tmp_path, name="Another").issue("mallory")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(serving, client_of(authority, stranger))


def test_files_that_cannot_be_used_are_named(authority: Authority, server: Issued, tmp_path: Path) -> None:
    """Each with its option and the error."""
    other = authority.issue("other")
    missing = tmp_path / "missing.pem"
    assert refused(missing, server.key) == f"--tls-certificate={missing}: it cannot be read: No such file or directory"
    assert refused(server.certificate, missing) == f"--tls-key={missing}: it cannot be read: No such file or directory"
    assert refused(server.certificate, server.key, missing).startswith(f"--tls-client-ca={missing}: it cannot be read")
    assert refused(server.key, server.key) == (
        f"--tls-certificate={server.key}: there is no PEM block 'CERTIFICATE' in it"
    )
    assert refused(server.certificate, server.certificate) == (
        f"--tls-key={server.certificate}: there is no PEM block 'PRIVATE KEY' in it"
    )
    assert refused(server.certificate, other.key) == (
        f"--tls-certificate={server.certificate} and --tls-key={other.key} do not match: the key belongs to"
        " another certificate"
    )
    locked = authority.issue("locked", password="hunter2")
    assert refused(locked.certificate, locked.key) == (
        f"--tls-key={locked.key}: the key is encrypted: give one without a pass phrase"
    )


def test_a_certificate_that_has_expired_is_named(tmp_path: Path) -> None:
    """All its clients would disconnect, each with a different cryptic error."""
    certificate, key, request = (tmp_path / name for name in ("old.pem", "old.key", "old.csr"))
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=old")
    openssl("req", "-new", *new_key, "-keyout", str(key), "-out", str(request))
    openssl("x509", "-req", "-in", str(request), "-signkey", str(key), "-days", "-1", "-out", str(certificate))
    assert refused(certificate, key) == (
        f"--tls-certificate={certificate}: no client would accept it: certificate has expired"
    )


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
