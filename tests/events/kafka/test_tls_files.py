"""Certificates and keys in files: loaded again when they have changed, and left when they cannot be used."""

import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest

from muster.events.kafka.tls_files import (
    BadTlsFile,
    FilesContext,
    contexts_of_files,
    is_same_certificate,
    present,
    trust,
)
from tests.brokers.certificates import Authority

PROPERTY = "ssl.ca.location"


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    folder = tmp_path_factory.mktemp("authorities")
    return Authority(folder / "a", name="First"), Authority(folder / "b", name="Second")


def trusted(context: ssl.SSLContext) -> set[str]:
    """The authorities by name."""
    subjects: list[Any] = [each["subject"] for each in context.get_ca_certs()]
    return {value for subject in subjects for ((name, value),) in subject if name == "commonName"}


def test_files_that_have_changed_are_loaded_again(authorities: tuple[Authority, Authority], tmp_path: Path) -> None:
    """Only when requested: checking changes nothing."""
    first, second = authorities
    file = tmp_path / "ca.pem"
    shutil.copy(first.certificate, file)
    context = FilesContext(ssl.PROTOCOL_TLS_CLIENT)
    trust(context, PROPERTY, file)
    assert context in contexts_of_files()
    assert context.files == (str(file),)
    assert (trusted(context), context.changed()) == ({"First"}, None)
    shutil.copy(second.certificate, file)
    contents = context.changed()
    assert contents == {file: second.certificate.read_bytes()}
    assert trusted(context) == {"First"}
    context.use(contents)
    assert (trusted(context), context.changed()) == ({"First", "Second"}, None)


def test_a_file_that_is_being_written_is_not_used(authorities: tuple[Authority, Authority], tmp_path: Path) -> None:
    """It is named, and so is a missing one; what was loaded stays."""
    file = tmp_path / "ca.pem"
    shutil.copy(authorities[0].certificate, file)
    context = FilesContext(ssl.PROTOCOL_TLS_CLIENT)
    trust(context, PROPERTY, file)
    whole = file.read_bytes()
    for content, reported in (
        (b"", f"{PROPERTY}={file}: there is no PEM block 'CERTIFICATE' in it"),
        (
            whole[:200] + b"\n-----END CERTIFICATE-----\n",
            f"{PROPERTY}={file}: this is not a PEM file of certificates (",
        ),
    ):
        file.write_bytes(content)
        with pytest.raises(BadTlsFile) as bad:
            context.changed()
        assert str(bad.value).startswith(reported)
    file.unlink()
    with pytest.raises(BadTlsFile, match=f"^{file}: it cannot be read: No such file or directory$"):
        context.changed()
    assert trusted(context) == {"First"}


def test_a_certificate_and_its_key_are_looked_at_together(
    authorities: tuple[Authority, Authority], tmp_path: Path
) -> None:
    """A new certificate without its key cannot be used yet."""
    issued, renewed = authorities[0].issue("server"), authorities[0].issue("renewed")
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    shutil.copy(issued.certificate, certificate)
    shutil.copy(issued.key, key)
    context = FilesContext(ssl.PROTOCOL_TLS_SERVER)
    present(context, ("c", certificate), ("k", key), pass_phrase=("p", None))
    assert set(context.files) == {str(certificate), str(key)}
    shutil.copy(renewed.certificate, certificate)
    with pytest.raises(BadTlsFile, match=f"^c={certificate} and k={key} do not match"):
        context.changed()
    shutil.copy(renewed.key, key)
    contents = context.changed()
    assert contents is not None
    context.use(contents)
    assert context.changed() is None


def test_a_context_of_another_kind_is_loaded_once(authorities: tuple[Authority, Authority]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust(context, PROPERTY, authorities[1].certificate)
    assert trusted(context) == {"Second"}
    assert context not in contexts_of_files()


def test_files_begin_with_the_same_certificate_whatever_is_around_it(
    authorities: tuple[Authority, Authority], tmp_path: Path
) -> None:
    """A chain after it, a key before it, other line ends."""
    first, second = (authority.certificate.read_text(encoding="utf-8") for authority in authorities)
    file = tmp_path / "chain.pem"
    for content, is_same in (
        (first + second, True),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n" + first, True),
        (first.replace("\n", "\r\n"), True),
        (second + first, False),
    ):
        file.write_text(content, encoding="utf-8", newline="")
        assert is_same_certificate(authorities[0].certificate, file) is is_same
        assert is_same_certificate(file, authorities[0].certificate) is is_same
