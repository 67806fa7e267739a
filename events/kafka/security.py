"""The security settings of a cluster, by the names of Kafka's own client properties.

It checks the properties, and converts them to aiokafka's arguments. The callers' `where` names the option, variable or
table that the properties came from. It imports no Kafka client.

    security.protocol       PLAINTEXT (the default), SSL, SASL_PLAINTEXT, SASL_SSL
    sasl.mechanism          PLAIN, SCRAM-SHA-256, SCRAM-SHA-512
    sasl.username, sasl.password
    ssl.ca.location         a PEM file; by default the system's authorities
    ssl.certificate.location, ssl.key.location, ssl.key.password
    ssl.endpoint.identification.algorithm    https (the default), none

Secrets can be set in the environment, as `<PREFIX>SASL_PASSWORD`, where no process list shows them. No message and no
`repr` contains the value of a secret.
"""

import difflib
import ssl
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from muster.events.kafka.tls_files import BadTlsFile, FilesContext, present, trust

PROPERTIES = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""The SASL mechanisms of our own connections. Clients' authentication is relayed, whatever its mechanism."""

_NameOf = Callable[[str], str]

KAFKA_CONFIG = "--kafka-config"
KAFKA_CONFIG_VARIABLES = "MUSTER_KAFKA_CONFIG_"
KAFKA_CONFIG_HELP = (
    "A Kafka client property for connecting to the cluster, e.g. security.protocol=SSL (docs/replay.md lists them "
    f"all); repeatable. Put secrets in the environment instead ({KAFKA_CONFIG_VARIABLES} followed by SASL_PASSWORD)."
)
"""The option of each command that may have to reach a secured cluster."""


class BadSecurity(Exception):
    """Properties that cannot be used; the message names them, and how to fix them."""


class KafkaSecurity(msgspec.Struct, frozen=True, kw_only=True):
    """Security settings in aiokafka's terms; the default is neither encrypted nor authenticated."""

    security_protocol: str = "PLAINTEXT"
    ssl_context: ssl.SSLContext | None = None
    sasl_mechanism: str = "PLAIN"
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = None
    presents_certificate: bool = False
    """True if the `ssl_context` has a client certificate."""

    def client_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of aiokafka's clients and connections."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if name != "presents_certificate"}

    @property
    def who(self) -> str:
        """Our principal at the brokers, for messages: only the brokers know that of a certificate."""
        if self.sasl_plain_username is not None:
            return f"user {self.sasl_plain_username} (sasl.username)"
        return "the principal of ssl.certificate.location" if self.presents_certificate else "User:ANONYMOUS"

    def wanted(self, setting: str = "security.protocol") -> str:
        """Explain what a broker that disconnects may require; `setting`: the name of the option."""
        if self.security_protocol == "PLAINTEXT":
            return f"does it want credentials or TLS ({setting})?"
        return f"does it speak {self.security_protocol} (security.protocol)?"

    def __repr__(self) -> str:
        return f"KafkaSecurity({self.security_protocol}, {self.sasl_mechanism}, {self.sasl_plain_username})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        # msgspec's own repr would show the password.
        return [("protocol", self.security_protocol), ("sasl", (self.sasl_mechanism, self.sasl_plain_username))]


NOT_SECURED = KafkaSecurity()


def is_secret(name: str) -> bool:
    """Return whether the value of a property must not be shown."""
    return name.endswith("password")


def split_properties(entries: Iterable[str] | None, where: str) -> dict[str, str]:
    """Parse `KEY=VALUE` texts. Raises BadSecurity, in which `where` names the option; values are never shown."""
    properties: dict[str, str] = {}
    for entry in entries or ():
        name, equals, value = entry.partition("=")
        name = name.strip()
        if not equals:
            raise BadSecurity(f"{where} should be KEY=VALUE, for example {where} security.protocol=SSL")
        if name in properties:
            raise BadSecurity(f"{where} {name} is given twice")
        properties[name] = value.strip()
    check_names(properties, where)
    return properties


def properties_of_environment(environment: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Read properties from variables: `<PREFIX>SASL_PASSWORD` is `sasl.password`. Raises BadSecurity."""
    names = {_variable(prefix, name): name for name in PROPERTIES}
    for variable in environment:
        if variable.startswith(prefix.removesuffix("_")) and variable not in names:
            raise BadSecurity(f"{variable}: unknown variable; known are {', '.join(names)}")
    return {name: environment[variable] for variable, name in names.items() if variable in environment}


def check_names(properties: Iterable[str], where: str) -> None:
    """Check that all names are known, so that typos are noticed. Raises BadSecurity."""
    for name in properties:
        if name not in PROPERTIES:
            near = difflib.get_close_matches(name, PROPERTIES, n=1)
            known = f"did you mean {near[0]}?" if near else f"known are {', '.join(PROPERTIES)}"
            raise BadSecurity(f"{where}: unknown property {name!r}; {known}")


def kafka_security(
    properties: Mapping[str, str], where: str, name_of: Callable[[str], str] | None = None
) -> KafkaSecurity:
    """Convert the properties. Raises BadSecurity, also for files that cannot be used.

    Errors name a property by `name_of`, since it may not come from the option `where`.
    """
    check_names(properties, where)
    try:
        return _read(properties, name_of or (lambda name: f"{where} {name}"))
    except BadTlsFile as bad:
        raise BadSecurity(str(bad)) from bad


def security_given(
    entries: Iterable[str] | None,
    environment: Mapping[str, str],
    *,
    option: str = KAFKA_CONFIG,
    variables: str = KAFKA_CONFIG_VARIABLES,
) -> KafkaSecurity:
    """Read the settings from `--kafka-config KEY=VALUE`, and others from the environment. Raises BadSecurity."""
    given = split_properties(entries, option)
    of_environment = properties_of_environment(environment, variables)

    def name_of(name: str) -> str:
        return f"{option} {name}" if name in given else _variable(variables, name)

    return kafka_security(of_environment | given, option, name_of)


def _variable(prefix: str, name: str) -> str:
    return prefix + name.replace(".", "_").upper()


def _read(properties: Mapping[str, str], name_of: _NameOf) -> KafkaSecurity:
    protocol = _one_of(properties, "security.protocol", PROTOCOLS, name_of, default="PLAINTEXT")
    for prefix, is_used, instead in (
        ("ssl.", protocol.endswith("SSL"), "SSL or SASL_SSL"),
        ("sasl.", protocol.startswith("SASL"), "SASL_SSL"),
    ):
        idle = next((name for name in properties if name.startswith(prefix)), None)
        if idle is not None and not is_used:
            raise BadSecurity(
                f"{name_of(idle)} has no effect with security.protocol={protocol}: use security.protocol={instead}"
            )
    context = _tls_context(properties, name_of) if protocol.endswith("SSL") else None
    presents_certificate = "ssl.certificate.location" in properties
    if not protocol.startswith("SASL"):
        return KafkaSecurity(security_protocol=protocol, ssl_context=context, presents_certificate=presents_certificate)
    for name in ("sasl.mechanism", "sasl.username", "sasl.password"):
        if not properties.get(name):
            raise BadSecurity(f"{name_of('security.protocol')}={protocol} needs {name}")
    return KafkaSecurity(
        security_protocol=protocol,
        ssl_context=context,
        sasl_mechanism=_one_of(properties, "sasl.mechanism", MECHANISMS, name_of, default=""),
        sasl_plain_username=properties["sasl.username"],
        sasl_plain_password=properties["sasl.password"],
        presents_certificate=presents_certificate,
    )


def _one_of(properties: Mapping[str, str], name: str, known: tuple[str, ...], name_of: _NameOf, *, default: str) -> str:
    value = properties.get(name, default)
    if value.upper() not in known:
        raise BadSecurity(f"{name_of(name)}={value} is none of {', '.join(known)}")
    return value.upper()


def _tls_context(properties: Mapping[str, str], name_of: _NameOf) -> ssl.SSLContext:
    """Build the TLS context for brokers: TLS 1.2 or newer; the broker's certificate is always checked."""
    context = FilesContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    algorithm = "ssl.endpoint.identification.algorithm"
    identification = properties.get(algorithm, "https")
    if identification.lower() not in {"https", "none", ""}:
        raise BadSecurity(f"{name_of(algorithm)}={identification} is none of https, none")
    context.check_hostname = identification.lower() == "https"
    authorities = properties.get("ssl.ca.location")
    if authorities is None:
        context.load_default_certs()
    else:
        trust(context, name_of("ssl.ca.location"), Path(authorities))
    _present(context, properties, name_of)
    return context


def _present(context: ssl.SSLContext, properties: Mapping[str, str], name_of: _NameOf) -> None:
    certificate, key = properties.get("ssl.certificate.location"), properties.get("ssl.key.location")
    phrase = properties.get("ssl.key.password")
    if certificate is None:
        if key is not None or phrase is not None:
            given = "ssl.key.location" if key is not None else "ssl.key.password"
            raise BadSecurity(f"{name_of(given)} needs ssl.certificate.location too")
        return
    present(
        context,
        (name_of("ssl.certificate.location"), Path(certificate)),
        None if key is None else (name_of("ssl.key.location"), Path(key)),
        pass_phrase=("give ssl.key.password" if phrase is None else name_of("ssl.key.password"), phrase),
    )
