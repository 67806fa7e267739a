"""Certificates and keys from files, into an `ssl.SSLContext`; whatever is wrong with a file is one line that names it.

What belongs here: reading PEM files for either end of a connection. What it must not know: which options or properties
the files come from (the caller's `name` says that), and what the connection is for.

OpenSSL tells neither the file nor, often, the fault. So each file is looked at before OpenSSL is, and a pass phrase is
never asked for on the terminal.
"""

import ssl
from pathlib import Path


class BadTlsFile(Exception):
    """A file that cannot be used; the message names it, and by which setting it was given."""


class _PassPhraseWanted(Exception):
    """The key is encrypted, and nobody gave a pass phrase."""


def trust(context: ssl.SSLContext, name: str, file: Path) -> None:
    """Accept what the authorities in the file have signed. Raises BadTlsFile."""
    _look_at(name, file, "CERTIFICATE")
    try:
        context.load_verify_locations(cafile=str(file))
    except ssl.SSLError as error:
        raise BadTlsFile(f"{name}={file}: this is no PEM file of certificates ({error.reason})") from error


def present(
    context: ssl.SSLContext,
    certificate: tuple[str, Path],
    key: tuple[str, Path] | None,
    *,
    pass_phrase: tuple[str, str | None],
) -> None:
    """Show the certificate (its chain behind it), proven by the key; each with the name of its setting.

    Without `key` the key is in the certificate's file. Raises BadTlsFile.
    """
    _look_at(*certificate, "CERTIFICATE")
    key = key or certificate
    _look_at(*key, "PRIVATE KEY")
    name, phrase = pass_phrase

    def password() -> str:
        if phrase is None:
            raise _PassPhraseWanted
        return phrase

    both = f"{certificate[0]}={certificate[1]} and {key[0]}={key[1]}"
    try:
        context.load_cert_chain(str(certificate[1]), str(key[1]), password)
    except _PassPhraseWanted as error:
        raise BadTlsFile(f"{key[0]}={key[1]}: the key is encrypted: {name}") from error
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise BadTlsFile(f"{both} do not match: the key is that of another certificate") from error
        if phrase is not None and b"ENCRYPTED" in key[1].read_bytes():
            raise BadTlsFile(f"{key[0]}={key[1]}: it cannot be decrypted with {name}") from error
        raise BadTlsFile(f"{both}: a certificate and its key cannot be read from them ({error.reason})") from error


def _look_at(name: str, file: Path, label: str) -> None:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise BadTlsFile(f"{name}={file}: it cannot be read: {error.strerror}") from error
    if b"-----BEGIN" not in content or f"{label}-----".encode() not in content:
        raise BadTlsFile(f"{name}={file}: there is no PEM block '{label}' in it")
