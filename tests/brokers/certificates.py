"""Certificates for tests: a certificate authority and the certificates that it issues, as PEM files.

Each step runs `openssl` as a child process; keys use an elliptic curve, which is fast. The files suit Kafka, librdkafka
and Python: a key is PKCS #8, a certificate is alone in its file, and a third file has both, for Kafka's PEM keystore.
"""

import subprocess
from pathlib import Path
from typing import Final

import msgspec

ENDS_WITHIN_S: Final = 30
NEW_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
SIGNS: Final = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")  # without it Python 3.13 trusts no authority
LOCAL_NAMES: Final = "IP:127.0.0.1,DNS:localhost"
DAYS: Final = 2


class CertificatesMissing(Exception):
    """`openssl` is missing or failed; the message has its output."""


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate and its key."""

    certificate: Path
    key: Path
    both: Path
    """The key and the certificate, in one file."""
    password: str | None
    """The password of the key; None if it is not encrypted."""


class Authority:
    """An authority with its own key, in a separate directory. Raises `CertificatesMissing`."""

    def __init__(self, directory: Path, *, name: str = "Test authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self.certificate = directory / "authority.pem"
        """The authority to trust: `ssl.ca.location`, or Kafka's PEM truststore."""
        self._key = directory / "authority.key"
        subject = ("-subj", f"/CN={name}", "-days", str(DAYS))
        _openssl("req", "-x509", *NEW_KEY, "-nodes", *subject, *SIGNS, "-keyout", self._key, "-out", self.certificate)

    def issue(self, name: str, *, names: str = LOCAL_NAMES, password: str | None = None, days: int = DAYS) -> Issued:
        """A server or client certificate for CN=`name`, valid for `names` (by default this machine's).

        It expires after this many `days`; a negative number makes it expired.
        """
        certificate, key, both = (self._directory / f"{name}.{ending}" for ending in ("pem", "key", "both.pem"))
        request, extensions = self._directory / f"{name}.csr", self._directory / f"{name}.ext"
        _openssl("req", "-new", *NEW_KEY, "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        extensions.write_text(f"subjectAltName={names}\n", encoding="ascii")
        signing = ("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial", "-days", str(days))
        _openssl("x509", "-req", "-in", request, *signing, "-extfile", extensions, "-out", certificate)
        if password is not None:
            _encrypt(key, password)
        both.write_bytes(key.read_bytes() + certificate.read_bytes())
        return Issued(certificate=certificate, key=key, both=both, password=password)


def _encrypt(key: Path, password: str) -> None:
    # With an explicit cipher: `req` would use triple DES, which Java does not read.
    encrypted = key.with_suffix(".encrypted")
    cipher = ("-v2", "aes-256-cbc", "-v2prf", "hmacWithSHA256", "-passout", f"pass:{password}")
    _openssl("pkcs8", "-topk8", *cipher, "-in", key, "-out", encrypted)
    encrypted.replace(key)


def _openssl(*arguments: str | Path) -> None:
    command = ["openssl", *map(str, arguments)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=ENDS_WITHIN_S, stdin=subprocess.DEVNULL, check=False
        )
    except FileNotFoundError as error:
        raise CertificatesMissing("certificates for tests are made with openssl, and it is not installed") from error
    if done.returncode:
        raise CertificatesMissing(f"{' '.join(command[:3])} failed:\n{done.stderr}")
