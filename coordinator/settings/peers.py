"""The settings of several sidecars of one log: how they reach each other, and how they authenticate.

Checks these settings for contradictions, and loads their files.
"""

import ssl
from collections.abc import Iterator, Set
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import msgspec

from muster.coordinator.peers.link.proof import SECRET_BYTES_MIN, BadPeerSecret
from muster.coordinator.settings.addresses import Address
from muster.coordinator.settings.sidecar_tls import client_context
from muster.events.kafka.tls_files import BadTlsFile, FilesContext, NamedFile, present, trust

TLS_FIELDS: Final = ("peer_tls_certificate", "peer_tls_key", "peer_tls_ca")
FIELDS: Final = ("role", "reuse_port", "peer_listen", "peer_advertise", "peer_secret_file", *TLS_FIELDS)


class PeerTls(msgspec.Struct, frozen=True, eq=False):
    """The contexts for both ends of a connection between sidecars: each end presents and requires a certificate."""

    accepting: ssl.SSLContext
    connecting: ssl.SSLContext

    @classmethod
    def of(cls, certificate: NamedFile, key: NamedFile, authorities: NamedFile) -> "PeerTls":
        """Create both contexts. Raises BadTls, BadTlsFile."""
        connecting = FilesContext(ssl.PROTOCOL_TLS_CLIENT)
        connecting.minimum_version = ssl.TLSVersion.TLSv1_2
        connecting.check_hostname = False  # a process is identified by its certificate's CA and the secret
        trust(connecting, *authorities)
        present(connecting, certificate, key, pass_phrase=("give one without a pass phrase", None))
        return cls(accepting=client_context(certificate, key, authorities), connecting=connecting)


def peer_secret(name: str, file: Path) -> bytes:
    """Read the secret, without surrounding white space. Raises OSError, BadPeerSecret.

    Seeks to the beginning first: processes that share an open file, such as /dev/fd/3, share its position too.
    """
    with file.open("rb", buffering=0) as opened:
        opened.seek(0)
        secret = opened.read().strip()
    if len(secret) < SECRET_BYTES_MIN:
        raise BadPeerSecret(
            f"{name}={file}: a secret of {len(secret)} bytes, {SECRET_BYTES_MIN} are needed; make one with"
            f" `openssl rand -hex 32 > {file}`"
        )
    return secret


def refuse_peers(settings: Any, given: Set[str]) -> Iterator[str]:  # noqa: ANN401 -- the settings import this
    """Yield an error line for each contradiction. `given`: the fields that some source has set."""
    name_of = settings.name_of
    share = name_of("share_partitions")
    if settings.processes > 1:
        yield from _refuse_several(settings, given)
        return
    if not settings.share_partitions:
        idle = [name_of(name) for name in FIELDS if name in given]
        if idle:
            yield f"{', '.join(idle)} without {share}: only sidecars that share a log reach each other"
        if "node_id" in given:
            yield f"{name_of('node_id')} without {share}: clients of a sidecar see the brokers' node ids"
        return
    missing = [name_of(name) for name in ("peer_listen", "peer_secret_file") if getattr(settings, name) is None]
    if missing:
        needed = " and ".join(missing)
        yield f"{share} with {name_of('upstream')} needs {needed}: sidecars forward requests to each other"
        return
    tls = [name for name in TLS_FIELDS if getattr(settings, name) is not None]
    if tls and len(tls) < len(TLS_FIELDS):
        lacking = " and ".join(name_of(name) for name in TLS_FIELDS if name not in tls)
        yield f"{', '.join(map(name_of, tls))} also needs {lacking}"
    yield from _addresses(settings, has_tls=bool(tls))
    try:
        settings.peer_secret()
    except OSError as error:
        yield f"{name_of('peer_secret_file')}={settings.peer_secret_file}: it cannot be read: {error.strerror}"
    except BadPeerSecret as bad:
        yield str(bad)
    if len(tls) == len(TLS_FIELDS):
        try:
            settings.peer_tls()
        except BadTlsFile as bad:
            yield str(bad)


def _refuse_several(settings: Any, given: Set[str]) -> Iterator[str]:  # noqa: ANN401 -- as above
    """Refuse settings that several processes of one host cannot share. Each process checks the rest at startup."""
    name_of = settings.name_of
    several = f"{name_of('processes')} {settings.processes}"
    for name, reason in (("role", "each gets its own"), ("reuse_port", "they share their ports anyway")):
        if name in given:
            yield f"{name_of(name)} and {several} contradict each other: {reason}"
    if not settings.log.startswith("kafka:"):
        yield f"{several} needs an event log in Kafka, and {name_of('log')} is {settings.log}"
    if not Address(settings.listen).port:
        yield f"{name_of('listen')} {settings.listen} with {several}: name a port, which all of them have"
    if settings.share_partitions and (settings.peer_listen is None or settings.peer_secret_file is None):
        needed = f"{name_of('peer_listen')} and {name_of('peer_secret_file')}"
        yield f"{several} with {name_of('share_partitions')} needs {needed}: the other hosts reach the owner there"


def _addresses(settings: Any, *, has_tls: bool) -> Iterator[str]:  # noqa: ANN401 -- as above
    listen = Address(settings.peer_listen)
    at = f"{settings.name_of('peer_listen')} {listen}"
    if settings.peer_advertise is None and listen.is_wildcard:
        yield f"{at}: other processes cannot be told that address; give {settings.name_of('peer_advertise')} HOST:PORT"
    if not has_tls and not _is_loopback(listen.host):
        lacking = ", ".join(map(settings.name_of, TLS_FIELDS))
        yield f"{at} without TLS is for this host alone, 127.0.0.1: give {lacking}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
