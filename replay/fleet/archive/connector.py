"""The connection options of Spark's Kafka source, converted from the properties that Muster's commands take.

Certificates and keys are passed as text, since workers on other machines do not have the files.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from muster.events.kafka.security import (
    KAFKA_CONFIG,
    KAFKA_CONFIG_VARIABLES,
    BadSecurity,
    properties_of_environment,
    split_properties,
)

PACKAGE: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
"""The Kafka source for Spark 4.0.x. For later versions not all of its dependencies are published."""

_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def connector_options(entries: Sequence[str] | None, environment: Mapping[str, str]) -> dict[str, str]:
    """The options that correspond to `--kafka-config` and its environment variables, which have already been checked.

    Raises BadSecurity for a key in a format that Java cannot read.
    """
    given = split_properties(entries, KAFKA_CONFIG)
    properties = properties_of_environment(environment, KAFKA_CONFIG_VARIABLES) | given
    options = {"security.protocol": properties.get("security.protocol", "PLAINTEXT").upper()}
    if options["security.protocol"].startswith("SASL"):
        options |= _sasl(properties)
    if options["security.protocol"].endswith("SSL"):
        options |= _tls(properties)
    return {f"kafka.{name}": value for name, value in options.items()}


def _sasl(properties: Mapping[str, str]) -> dict[str, str]:
    mechanism = properties["sasl.mechanism"].upper()
    user, password = (_quoted(properties[name]) for name in ("sasl.username", "sasl.password"))
    login = f"{_LOGIN_MODULES[mechanism]} required username={user} password={password};"
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": login}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _tls(properties: Mapping[str, str]) -> dict[str, str]:
    identification = properties.get("ssl.endpoint.identification.algorithm", "https").lower()
    options = {"ssl.endpoint.identification.algorithm": "https" if identification == "https" else ""}
    if "ssl.ca.location" in properties:
        options["ssl.truststore.type"] = "PEM"
        options["ssl.truststore.certificates"] = _text(properties["ssl.ca.location"])
    if "ssl.certificate.location" in properties:
        chain = _text(properties["ssl.certificate.location"])
        location = properties.get("ssl.key.location", properties["ssl.certificate.location"])
        key = _key(_text(location), location)
        options |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
    if "ssl.key.password" in properties:
        options["ssl.key.password"] = properties["ssl.key.password"]
    return options


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def _key(text: str, path: str) -> str:
    """The key alone, in the form of PKCS #8 that Java reads."""
    for kind in ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"):
        _, begin, rest = text.partition(f"-----BEGIN {kind}-----")
        body, end, _ = rest.partition(f"-----END {kind}-----")
        if begin and end:
            return begin + body + end
    raise BadSecurity(
        f"{path} has no key in PKCS #8, the one form that Java reads; convert it with"
        f" `openssl pkcs8 -topk8 -in {path} -out NEW`, or say --engine local"
    )
