"""Kafka's client properties: their meaning, their errors, and that no secret is ever shown."""

import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.pretty import pretty_repr

from muster.events.kafka.security import (
    NOT_SECURED,
    PROPERTIES,
    BadSecurity,
    KafkaSecurity,
    kafka_security,
    properties_of_environment,
    security_given,
    split_properties,
)
from tests.brokers.certificates import Authority, Issued

SECRET = "hunter2"
NO_CERTIFICATE = Path(__file__).with_name("test_addresses.py")
SCRAM = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "muster",
    "sasl.password": SECRET,
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue("muster")


def refused(properties: Mapping[str, str]) -> str:
    """The one line, which begins with where the properties come from and has no secret in it."""
    with pytest.raises(BadSecurity) as bad:
        kafka_security(properties, "--kafka-config")
    text = str(bad.value)
    assert text.startswith("--kafka-config")
    assert "\n" not in text
    assert SECRET not in text
    return text


def test_without_properties_nothing_is_secured() -> None:
    """As in Kafka's own clients."""
    assert kafka_security({}, "here") == NOT_SECURED
    assert NOT_SECURED.client_arguments() == {
        "security_protocol": "PLAINTEXT",
        "ssl_context": None,
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": None,
        "sasl_plain_password": None,
    }


def test_authentication_needs_mechanism_name_and_password() -> None:
    """Protocol and mechanism in any case of letters, as librdkafka takes them."""
    written = SCRAM | {"security.protocol": "sasl_plaintext", "sasl.mechanism": "scram-sha-512"}
    assert kafka_security(written, "here") == KafkaSecurity(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="muster",
        sasl_plain_password=SECRET,
    )


def test_the_principal_that_brokers_see_is_shown() -> None:
    """The name of a certificate is known to brokers alone."""
    assert NOT_SECURED.who == "User:ANONYMOUS"
    assert KafkaSecurity(presents_certificate=True).who == "the principal of ssl.certificate.location"
    assert KafkaSecurity(presents_certificate=True, sasl_plain_username="bob").who == "user bob (sasl.username)"


def test_no_form_of_it_shows_the_password() -> None:
    """Neither Python's repr, nor that of rich, which gets the fields from msgspec."""
    security = kafka_security(SCRAM, "here")
    assert SECRET not in f"{security} {security!r} {pretty_repr(security)}"


def test_tls_checks_the_broker_by_the_authority_that_was_named(authority: Authority) -> None:
    """And its name, unless that is turned off."""
    properties = {"security.protocol": "SSL", "ssl.ca.location": str(authority.certificate)}
    checked = kafka_security(properties, "here").ssl_context
    assert checked is not None
    assert checked.verify_mode is ssl.CERT_REQUIRED
    assert checked.check_hostname
    assert checked.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert len(checked.get_ca_certs()) == 1
    unnamed = kafka_security(properties | {"ssl.endpoint.identification.algorithm": "none"}, "here").ssl_context
    assert unnamed is not None
    assert (unnamed.check_hostname, unnamed.verify_mode) == (False, ssl.CERT_REQUIRED)


def test_a_certificate_is_presented_with_its_key(authority: Authority, issued: Issued) -> None:
    """In separate files, in one file, or with an encrypted key."""
    certificate = {"security.protocol": "SSL", "ssl.certificate.location": str(issued.certificate)}
    assert kafka_security(certificate | {"ssl.key.location": str(issued.key)}, "here").presents_certificate
    assert kafka_security(certificate | {"ssl.certificate.location": str(issued.both)}, "here").presents_certificate
    assert not kafka_security({"security.protocol": "SSL"}, "here").presents_certificate
    locked = authority.issue("locked", password=SECRET)
    properties = {
        "security.protocol": "SSL",
        "ssl.certificate.location": str(locked.certificate),
        "ssl.key.location": str(locked.key),
    }
    assert kafka_security(properties | {"ssl.key.password": SECRET}, "here").presents_certificate
    assert "the key is encrypted: give ssl.key.password" in refused(properties)
    wrong = refused(properties | {"ssl.key.password": "wrong"})
    assert "cannot be decrypted with --kafka-config ssl.key.password" in wrong
    assert "'wrong'" not in wrong


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"sasl.pasword": SECRET}, "unknown property 'sasl.pasword'; did you mean sasl.password?"),
        ({"quite.another": "1"}, "unknown property 'quite.another'; known are security.protocol, sasl."),
        ({"security.protocol": "TLS"}, "security.protocol=TLS is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        (
            SCRAM | {"sasl.mechanism": "GSSAPI"},
            "sasl.mechanism=GSSAPI is none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        ({"sasl.password": SECRET}, "sasl.password has no effect with security.protocol=PLAINTEXT: use security"),
        ({"ssl.ca.location": "ca.pem"}, "ssl.ca.location has no effect with security.protocol=PLAINTEXT: use"),
        (
            SCRAM | {"ssl.ca.location": "ca.pem"},
            "no effect with security.protocol=SASL_PLAINTEXT: use security.protocol=SSL or SASL_SSL",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
            "protocol=SASL_SSL needs sasl.username",
        ),
        (SCRAM | {"sasl.password": ""}, "security.protocol=SASL_PLAINTEXT needs sasl.password"),
        (
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldap"},
            "ssl.endpoint.identification.algorithm=ldap is none of https, none",
        ),
        ({"security.protocol": "SSL", "ssl.key.location": "a.key"}, "ssl.key.location needs ssl.certificate.location"),
        ({"security.protocol": "SSL", "ssl.key.password": SECRET}, "ssl.key.password needs ssl.certificate.location"),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "/no/ca.pem"},
            "ssl.ca.location=/no/ca.pem: it cannot be read: No such file or directory",
        ),
        (
            {"security.protocol": "SSL", "ssl.ca.location": str(NO_CERTIFICATE)},
            f"ssl.ca.location={NO_CERTIFICATE}: there is no PEM block 'CERTIFICATE' in it",
        ),
        (
            {"security.protocol": "SSL", "ssl.certificate.location": str(NO_CERTIFICATE)},
            f"ssl.certificate.location={NO_CERTIFICATE}: there is no PEM block 'CERTIFICATE' in it",
        ),
    ],
)
def test_unusable_settings_are_named(properties: dict[str, str], said: str) -> None:
    """With the way out."""
    assert said in refused(properties)


def test_files_that_do_not_belong_together_are_named(authority: Authority, issued: Issued, tmp_path: Path) -> None:
    """Both of them; and a file with truncated content."""
    other = authority.issue("other")
    properties = {"security.protocol": "SSL", "ssl.certificate.location": str(issued.certificate)}
    text = refused(properties | {"ssl.key.location": str(other.key)})
    assert f"{issued.certificate} and --kafka-config ssl.key.location={other.key} do not match" in text
    torn = tmp_path / "torn.pem"
    torn.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert "this is not a PEM file" in refused({"security.protocol": "SSL", "ssl.ca.location": str(torn)})
    assert "cannot be read from them" in refused(
        properties | {"ssl.certificate.location": str(torn), "ssl.key.location": str(other.key)}
    )


def test_entries_of_the_command_line() -> None:
    """White space around name and value is ignored; a value may contain any character."""
    assert split_properties([" sasl.username = a=b ", "sasl.password=#,;"], "--kafka-config") == {
        "sasl.username": "a=b",
        "sasl.password": "#,;",
    }
    for entries, reported in (
        ([SECRET], "--kafka-config should be KEY=VALUE"),
        (["sasl.password=a", f"sasl.password={SECRET}"], "--kafka-config sasl.password is given twice"),
    ):
        with pytest.raises(BadSecurity, match=reported) as bad:
            split_properties(entries, "--kafka-config")
        assert SECRET not in str(bad.value)


def test_every_property_has_a_variable() -> None:
    """A variable that resembles a property's but is not one is an error."""
    variables = {f"MUSTER_KAFKA_CONFIG_{name.replace('.', '_').upper()}": name for name in PROPERTIES}
    assert properties_of_environment({**variables, "HOME": "/"}, "MUSTER_KAFKA_CONFIG_") == {
        name: name for name in PROPERTIES
    }
    for wrong in ("MUSTER_KAFKA_CONFIG_SASL_PASWORD", "MUSTER_KAFKA_CONFIG"):
        with pytest.raises(BadSecurity, match=f"{wrong}: unknown variable; known are MUSTER_KAFKA") as bad:
            properties_of_environment({wrong: SECRET}, "MUSTER_KAFKA_CONFIG_")
        assert SECRET not in str(bad.value)


def test_the_command_line_wins_over_the_environment() -> None:
    """Name by name."""
    environment = {"MUSTER_KAFKA_CONFIG_SASL_PASSWORD": SECRET, "MUSTER_KAFKA_CONFIG_SASL_USERNAME": "other"}
    entries = [f"{name}={value}" for name, value in SCRAM.items() if name != "sasl.password"]
    assert security_given(entries, environment) == kafka_security(SCRAM, "here")


def test_values_from_the_environment_are_named_by_their_variable() -> None:
    """But not where the command line has won."""
    environment = {"MUSTER_KAFKA_CONFIG_SASL_MECHANISM": "none"}
    entries = [f"{name}={value}" for name, value in SCRAM.items() if name != "sasl.mechanism"]
    with pytest.raises(BadSecurity, match=r"^MUSTER_KAFKA_CONFIG_SASL_MECHANISM=none is none of"):
        security_given(entries, environment)
    with pytest.raises(BadSecurity, match=r"^--kafka-config sasl.mechanism=nil is none of"):
        security_given([*entries, "sasl.mechanism=nil"], environment)
