"""The settings of the sidecar: the upstream cluster, the listeners, the groups that it may own.

These are the fields of `Settings` that have a meaning only with `--upstream`, checks for contradictions among them, and
the objects built from them. Everything is checked when the settings are loaded, including files.
"""

import ssl
from collections.abc import Iterator, Mapping, Set
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, PrivateAttr
from pydantic_settings import BaseSettings, NoDecode

from muster.coordinator.group.settings import INT32_MAX
from muster.coordinator.settings.addresses import Address, HostPort, Servers
from muster.coordinator.settings.broker_ports import BrokerPorts
from muster.coordinator.settings.options import PEERS, SIDECAR, TLS, Milliseconds, option
from muster.coordinator.settings.peers import PeerTls, peer_secret, refuse_peers
from muster.coordinator.settings.setting_sources import Sources
from muster.coordinator.upstream.security import ClientsCertificate, UpstreamSecurity
from muster.events.kafka.addresses import PORT_MAX

FRONTEND: Final = "edge"  # the name of the role for users
"""The role of a process that owns nothing."""
OWNER: Final = "owner"
"""The role of a process without clients of its own."""

NODE_IDS_BY_CHANCE: Final = 1_000_000_000
"""A frontend without a node id chooses one of the highest node ids at random; this is how many there are."""

EVENT_TOPIC = "__muster_events"
"""The event topic of a sidecar in the upstream cluster, unless `--log` names another log."""


def split_list(value: Any) -> Any:  # noqa: ANN401 -- whatever a source gives
    """Split a comma-separated list, as environment variables have it."""
    return [text.strip() for text in value.split(",") if text.strip()] if isinstance(value, str) else value


def _read_map(value: Any) -> Any:  # noqa: ANN401 -- whatever a source gives
    """Parse `ID=PORT,ID=PORT`, a list of such texts, or a table of the file."""
    if value == {}:
        return value
    if isinstance(value, list):
        value = ",".join(map(str, value))
    if isinstance(value, Mapping):
        value = ",".join(f"{node_id}={port}" for node_id, port in value.items())
    ports: dict[int, int] = {}
    for entry in str(value).split(","):
        node_id, _, port = (part.strip() for part in entry.partition("="))
        if not (node_id.isdecimal() and port.isdecimal() and int(node_id) <= INT32_MAX and 0 < int(port) <= PORT_MAX):
            raise ValueError(f"{entry.strip()!r} should be ID=PORT, a node id and a port up to {PORT_MAX}")
        if int(node_id) in ports:
            raise ValueError(f"node id {int(node_id)} is given twice")
        if int(port) in ports.values():
            raise ValueError(f"port {int(port)} is given to two node ids")
        ports[int(node_id)] = int(port)
    return ports


Properties = Annotated[dict[str, str], NoDecode]
"""Kafka's client properties. They contain secrets, so they are in no `repr` and in no message."""


class SidecarSettings(BaseSettings):
    """The part of `Settings` that needs `--upstream`, which makes the process a sidecar."""

    upstream: Servers | None = option(
        None,
        "The cluster that Muster runs in front of: HOST:PORT of one or more brokers, separated by commas.",
        metavar="HOST:PORT",
        panel=SIDECAR,
    )
    upstream_config: Properties = option(
        dict,
        "Kafka client properties for it, of those listed below. Put secrets in the environment "
        "(MUSTER_UPSTREAM_CONFIG_ followed by SASL_PASSWORD) or in the file ([upstream]) instead.",
        metavar="KEY=VALUE",
        panel=SIDECAR,
        repr=False,
    )
    broker_base_port: int | None = option(
        None,
        "The listener for the broker with node id N is at this port + N. [default: the port of --listen + 1]",
        metavar="PORT",
        panel=SIDECAR,
        ge=1,
        le=PORT_MAX,
    )
    listener_map: Annotated[dict[int, int], NoDecode, BeforeValidator(_read_map)] = option(
        dict, "Other listener ports for some brokers: ID=PORT, separated by commas.", metavar="ID=PORT", panel=SIDECAR
    )
    groups: Annotated[list[str], NoDecode, BeforeValidator(split_list)] = option(
        lambda: ["*"],
        "Groups that Muster may own: a pattern of group ids with * and ?; all others are relayed.",
        metavar="PATTERN",
        panel=SIDECAR,
        min_length=1,
    )
    authorization_cache_ms: Milliseconds = option(
        5_000, "How long Muster caches a broker's authorization of a client.", panel=SIDECAR, ge=0, le=60_000
    )
    connections_per_principal: int | None = option(
        None,
        "Maximum number of simultaneous connections of one principal, if clients authenticate with SASL. [default: "
        "nine tenths of --connections-max]",
        panel=SIDECAR,
        ge=1,
    )

    tls_certificate: Path | None = option(
        None, "Serve clients over TLS with this certificate, followed by its chain (PEM).", metavar="FILE", panel=TLS
    )
    tls_key: Path | None = option(
        None, "The certificate's private key (PEM, not encrypted).", metavar="FILE", panel=TLS
    )
    tls_client_ca: Path | None = option(
        None, "Require client certificates signed by one of these authorities (PEM).", metavar="FILE", panel=TLS
    )
    single_identity: bool = option(
        default=False,
        help_="Upstream, all clients are one principal, that of --single-identity-certificate.",
        panel=TLS,
    )
    single_identity_certificate: Path | None = option(
        None,
        "The certificate (PEM) presented to brokers for every client; not Muster's own.",
        metavar="FILE",
        panel=TLS,
    )
    single_identity_key: Path | None = option(
        None, "That certificate's private key (PEM, not encrypted).", metavar="FILE", panel=TLS
    )

    processes: int = option(
        1,
        "Number of processes on this host that serve the addresses of --listen, each on its own core, beside one "
        "process that owns groups; --metrics covers all of them. With --share-partitions other hosts share the log.",
        panel=PEERS,
        ge=1,
        le=64,
    )
    role: Literal["both", "edge", "owner"] = option(
        "both",
        "With --share-partitions: an edge owns no groups, and forwards all requests to the processes that do. It "
        "needs no permission to write to the event log, and there may be up to 1,000 edges. An owner has no "
        "clients of its own.",
        panel=PEERS,
    )
    reuse_port: bool = option(
        default=False,
        help_="Share the addresses of --listen with other processes of this host that also set this "
        "(SO_REUSEPORT): each gets some of the connections.",
        panel=PEERS,
    )
    peer_listen: HostPort | None = option(
        None,
        "With --share-partitions: where the log's other sidecars connect to this one, HOST:PORT, to forward "
        "requests for its groups.",
        metavar="HOST:PORT",
        panel=PEERS,
    )
    peer_advertise: HostPort | None = option(
        None,
        "The address advertised to the other sidecars, if it differs from --peer-listen.",
        metavar="HOST:PORT",
        panel=PEERS,
    )
    peer_secret_file: Path | None = option(
        None,
        "A file with a secret of 16 bytes or more, the same for all sidecars of the log: any process that has it "
        "is trusted. It is read again for each connection.",
        metavar="FILE",
        panel=PEERS,
    )
    peer_tls_certificate: Path | None = option(
        None,
        "The certificate shown to the other sidecars, on accepted and on opened connections (PEM).",
        metavar="FILE",
        panel=PEERS,
    )
    peer_tls_key: Path | None = option(
        None, "That certificate's private key (PEM, not encrypted).", metavar="FILE", panel=PEERS
    )
    peer_tls_ca: Path | None = option(
        None, "The authorities that sign the sidecars' certificates (PEM).", metavar="FILE", panel=PEERS
    )

    _sources: Sources = PrivateAttr(default=Sources())

    def came_from(self, sources: Sources) -> None:
        """Set the sources, so that errors name the flag, variable or key that was given; without them, the flag."""
        self._sources = sources

    def name_of(self, field: str, prop: str = "") -> str:
        """Return the name that errors print for a field; see `Sources`."""
        return self._sources.name_of(field, prop)

    def given_by(self, field: str, prop: str = "") -> str | None:
        """Return the name of the source that set a field; None for a default. See `Sources`."""
        return self._sources.given_by(field, prop)

    def upstream_security(self) -> UpstreamSecurity:
        """Return the security of connections to the upstream cluster. Raises BadSecurity."""
        certificate, key = self._file("single_identity_certificate"), self._file("single_identity_key")
        return UpstreamSecurity.of(
            self.upstream_config,
            where="--upstream-config",
            name_of=lambda name: self.name_of("upstream_config", name),
            for_clients=None if certificate is None or key is None else ClientsCertificate(certificate, key),
        )

    def client_tls(self) -> ssl.SSLContext | None:
        """Return the TLS context of the listeners; None for plaintext. Raises BadTls."""
        from muster.coordinator.settings.sidecar_tls import client_context  # noqa: PLC0415 -- `--help` needs no logs

        certificate, key = self._file("tls_certificate"), self._file("tls_key")
        if certificate is None or key is None:
            return None
        return client_context(certificate, key, self._file("tls_client_ca"))

    def peer_tls(self) -> PeerTls | None:
        """Return the TLS contexts for links between sidecars; None: plaintext, on this host only. Raises BadTls."""
        files = [self._file(name) for name in ("peer_tls_certificate", "peer_tls_key", "peer_tls_ca")]
        certificate, key, authorities = files
        if certificate is None or key is None or authorities is None:
            return None
        return PeerTls.of(certificate, key, authorities)

    def peer_secret(self) -> bytes:
        """Read the sidecars' shared secret. Raises OSError, and BadPeerSecret if it is too short."""
        assert self.peer_secret_file is not None
        return peer_secret(self.name_of("peer_secret_file"), self.peer_secret_file)

    def _file(self, field: str) -> tuple[str, Path] | None:
        path = getattr(self, field)
        return None if path is None else (self.name_of(field), path)

    def may_own(self, group_id: str) -> bool:
        """Return whether a pattern of `--groups` matches the whole group id, case-sensitively."""
        return any(fnmatchcase(group_id, pattern) for pattern in self.groups)

    def broker_ports(self, listen: Address, metrics: Address | None) -> BrokerPorts:
        """Return the rule for the ports of the brokers' listeners. `listen`: with the bound port, if it was 0."""
        taken = {listen.port: self.name_of("listen")}
        if metrics is not None and Address(f"{listen.host}:{metrics.port}").shares_port_with(metrics):
            taken[metrics.port] = self.name_of("metrics")
        follows = f"the port after {self.name_of('listen')},"
        return BrokerPorts(
            base=self.broker_base_port or listen.port + 1,
            mapping=self.listener_map,
            taken=taken,
            base_name=follows if self.broker_base_port is None else self.name_of("broker_base_port"),
            mapping_name=self.name_of("listener_map"),
        )


NOT_WITH_UPSTREAM: Mapping[str, str] = {
    "topic": "clients see the cluster's topics",
    "cluster_id": "clients see the cluster's id",
}
"""The settings of standalone mode, and why a sidecar does not use them."""


def refusals(settings: SidecarSettings, given: Set[str], listen: Address, metrics: Address | None) -> Iterator[str]:
    """Yield an error line for each contradiction. `given`: the fields that some source has set."""
    name_of = settings.name_of
    if settings.upstream is None:
        idle = [name_of(name) for name in SidecarSettings.model_fields if name in given]
        if idle:
            yield f"{', '.join(idle)} without --upstream: only a sidecar, in front of a cluster, can use it"
        return
    for name, reason in NOT_WITH_UPSTREAM.items():
        if name in given:
            yield f"{name_of(name)} and {name_of('upstream')} contradict each other: {reason}; leave one of them out"
    yield from refuse_peers(settings, given)
    yield from _tls_refusals(settings)
    yield from _port_refusals(settings, listen, metrics)


def _tls_refusals(settings: SidecarSettings) -> Iterator[str]:
    for name, other in (
        ("tls_certificate", "tls_key"),
        ("tls_key", "tls_certificate"),
        ("tls_client_ca", "tls_certificate"),
    ):
        if getattr(settings, name) is not None and getattr(settings, other) is None:
            yield f"{settings.name_of(name)} also needs {settings.name_of(other)}"
    yield from _identity_refusals(settings)


def _identity_refusals(settings: SidecarSettings) -> Iterator[str]:
    """Refuse one upstream certificate for all clients, whose own TLS ends here, without `--single-identity`."""
    name_of = settings.name_of
    upstream = settings.upstream_security().kafka_security()
    files = settings.single_identity_certificate, settings.single_identity_key
    single = name_of("single_identity")
    of_files = f"{name_of('single_identity_certificate')} and {name_of('single_identity_key')}"
    if settings.single_identity and None in files:
        yield (
            f"{single} needs {of_files}, which represent all clients upstream; Muster's own certificate is never "
            "used for them, since it may have rights that no client should have"
        )
    elif not settings.single_identity and any(files):
        yield f"{of_files} also need {single}"
    elif any(files) and upstream.ssl_context is None:
        protocol = name_of("upstream_config", "security.protocol")
        yield f"{single} presents a certificate to brokers: it needs {protocol}=SSL"
    # With SASL_SSL the certificate only opens the connection; the principal is the SASL user.
    elif upstream.presents_certificate and upstream.security_protocol == "SSL" and not settings.single_identity:
        yield (
            f"{name_of('upstream_config', 'ssl.certificate.location')}: if brokers identify clients by "
            "certificates, all clients are one principal upstream, since their own certificates end here: give "
            f"{single} and a certificate for them if you want that, or have clients authenticate with SASL, which "
            "is passed through"
        )


def _port_refusals(settings: SidecarSettings, listen: Address, metrics: Address | None) -> Iterator[str]:
    if settings.broker_base_port is None and listen.port == PORT_MAX:
        at = f"{settings.name_of('listen')} {listen}"
        yield f"{at} leaves no ports above it for the brokers' listeners: give --broker-base-port"
        return
    taken = settings.broker_ports(listen, metrics).taken
    for node_id, port in settings.listener_map.items():
        if port in taken:
            yield f"{settings.name_of('listener_map')} {node_id}={port}: {taken[port]} has that port"
