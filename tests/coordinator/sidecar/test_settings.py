"""The settings of a sidecar: their effects, the sources of secrets, and contradictions."""

from pathlib import Path
from typing import Any

import pytest

from muster.coordinator.settings.addresses import Address
from muster.coordinator.settings.broker_ports import BrokerPorts
from muster.coordinator.settings.loading import BadSettings, load_settings
from muster.coordinator.settings.settings import Settings
from muster.events.kafka.security import NOT_SECURED
from tests.brokers.certificates import Authority, Issued

SECRET = "hunter2"
SASL = ["security.protocol=SASL_PLAINTEXT", "sasl.mechanism=PLAIN", "sasl.username=muster"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue("muster")


def sidecar(**flags: Any) -> Settings:
    return load_settings({"upstream": "kafka:9092", **flags}, [], None)


def refused(flags: dict[str, Any], file: Path | None = None) -> str:
    """The one line; it contains no secret."""
    with pytest.raises(BadSettings) as bad:
        load_settings(flags, [], file)
    assert "\n" not in str(bad.value)
    assert SECRET not in str(bad.value)
    return str(bad.value)


def of_metrics(text: str) -> BrokerPorts:
    return sidecar().broker_ports(Address("127.0.0.1:9092"), Address(text))


def test_an_upstream_makes_a_sidecar() -> None:
    """Its event log is a topic there; white space in the list is ignored (known bug P13)."""
    settings = load_settings({"upstream": " kafka-1:9092 , kafka-2:9092\t"}, [], None)
    assert settings.upstream == "kafka-1:9092,kafka-2:9092"
    assert settings.log == "kafka://kafka-1:9092,kafka-2:9092/__muster_events"
    assert settings.authorization_cache_ms == 5_000
    assert settings.client_tls() is None
    assert settings.upstream_security().kafka_security() == settings.log_security() == NOT_SECURED
    assert sidecar(log="sqlite:///muster.db").log == "sqlite:///muster.db"
    assert load_settings({}, [], None).log == "sqlite:///muster.db"


def test_listeners_begin_above_the_first_address() -> None:
    """At the bound port, if any port was requested; an explicit base is used unchanged."""
    ports = sidecar(listen="127.0.0.1:0", listener_map="7=19000, 8 = 19001").broker_ports(
        Address("127.0.0.1:4000"), None
    )
    assert [ports.port_of(node_id) for node_id in (0, 2, 7, 8)] == [4001, 4003, 19_000, 19_001]
    assert sidecar(broker_base_port=20_000).broker_ports(Address("127.0.0.1:9092"), None).port_of(1) == 20_001


def test_no_listener_is_where_something_else_is() -> None:
    """The first address, and that of the metrics if they share a host."""
    assert dict(of_metrics("127.0.0.1:9100").taken) == {9092: "--listen", 9100: "--metrics"}
    assert dict(of_metrics("0.0.0.0:9100").taken) == {9092: "--listen", 9100: "--metrics"}
    assert dict(of_metrics("10.0.0.1:9100").taken) == {9092: "--listen"}


def test_groups_are_patterns_of_whole_ids() -> None:
    """Case-sensitive; all groups, unless patterns are given."""
    assert sidecar().may_own("anything")
    settings = sidecar(groups=["orders-*", "pay?"])
    assert [group for group in ("orders-1", "Orders-1", "my-orders-1", "pay1", "pay") if settings.may_own(group)] == [
        "orders-1",
        "pay1",
    ]


def test_a_secret_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line is visible to all users; and no representation of the settings shows the secret."""
    monkeypatch.setenv("MUSTER_UPSTREAM_CONFIG_SASL_PASSWORD", SECRET)
    settings = sidecar(upstream_config=SASL)
    assert settings.upstream_security().kafka_security().sasl_plain_password == SECRET
    assert SECRET not in f"{settings} {settings!r}"
    monkeypatch.setenv("MUSTER_UPSTREAM_CONFIG_SASL_PASWORD", SECRET)
    assert "MUSTER_UPSTREAM_CONFIG_SASL_PASWORD: unknown variable" in refused({"upstream": "kafka:9092"})


def test_the_file_has_a_table_for_the_upstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names with or without quotes; each source only fills in what the previous ones left open, by name."""
    file = tmp_path / "muster.toml"
    file.write_text(
        f'groups = ["a*"]\n[upstream]\nbootstrap.servers = "kafka:1"\nsecurity.protocol = "SASL_PLAINTEXT"\n'
        f'"sasl.mechanism" = "PLAIN"\nsasl.username = "of the file"\nsasl.password = "{SECRET}"\n'
        "[listener-map]\n7 = 19000\n"
    )
    monkeypatch.setenv("MUSTER_UPSTREAM_CONFIG_SASL_USERNAME", "of the environment")
    settings = load_settings({"upstream_config": ["sasl.mechanism=SCRAM-SHA-256"]}, [], file)
    security = settings.upstream_security().kafka_security()
    assert settings.upstream == "kafka:1"
    assert (security.sasl_mechanism, security.sasl_plain_username) == ("SCRAM-SHA-256", "of the environment")
    assert security.sasl_plain_password == SECRET
    assert (settings.groups, settings.listener_map) == (["a*"], {7: 19_000})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[upstream]\nsasl.pasword = "hunter2"', "unknown property 'sasl.pasword'; did you mean sasl.password?"),
        ('upstream = "kafka:1"\nupstream-config = "hunter2"', "[upstream-config] should be a table"),
        (
            '[upstream]\n"bootstrap.servers" = "kafka:1"\nsasl.password = 4',
            "toml: upstream-config sasl.password: should be",
        ),
    ],
)
def test_a_table_that_cannot_be_used_is_named(tmp_path: Path, text: str, said: str) -> None:
    """With the property, without its value."""
    file = tmp_path / "muster.toml"
    file.write_text(text)
    assert said in refused({}, file)


def test_the_logs_cluster_is_reached_as_the_upstream_is_when_it_is_the_upstream() -> None:
    """Credentials are sent to no other cluster; that has its own properties."""
    flags: dict[str, Any] = {"upstream": "a:1,b:1", "upstream_config": [*SASL, f"sasl.password={SECRET}"]}
    assert load_settings(flags, [], None).log_security().sasl_plain_password == SECRET
    assert load_settings({**flags, "log": "kafka://b:1/events"}, [], None).log_security().sasl_plain_password == SECRET
    assert load_settings({**flags, "log": "kafka://c:1/events"}, [], None).log_security() == NOT_SECURED
    own = {"log": "kafka://c:1/events", "kafka_config": [*SASL, "sasl.password=other"]}
    assert load_settings({**flags, **own}, [], None).log_security().sasl_plain_password == "other"
    assert load_settings(own, [], None).log_security().sasl_plain_password == "other"


def test_variables_for_other_commands_do_not_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    """`muster members` and `muster replay` read them too; they count where the log needs them."""
    monkeypatch.setenv("MUSTER_KAFKA_CONFIG_SASL_PASSWORD", SECRET)
    assert sidecar().log_security() == NOT_SECURED
    assert load_settings({}, [], None).log_security() == NOT_SECURED
    flags = {"log": "kafka://c:1/events", "kafka_config": SASL}
    assert load_settings(flags, [], None).log_security().sasl_plain_password == SECRET
    assert "MUSTER_KAFKA_CONFIG_SASL_PASSWORD has no effect with" in refused({"log": "kafka://c:1/events"})


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"topic": ["orders:1"]}, "--topic and --upstream contradict each other: clients see the cluster's topics"),
        ({"cluster_id": "muster"}, "--cluster-id and --upstream contradict each other: clients see the cluster's"),
        ({"node_id": 1}, "--node-id without --share-partitions: clients of a sidecar see the brokers' node ids"),
        ({"upstream": "kafka"}, "--upstream=kafka: 'kafka' should be HOST:PORT"),
        ({"upstream": "kafka:9092,"}, "--upstream=kafka:9092,: '' should be HOST:PORT"),
        ({"upstream": "kafka:0"}, "--upstream=kafka:0: 'kafka:0' should be HOST:PORT"),
        ({"upstream_config": [SECRET]}, "--upstream-config should be KEY=VALUE"),
        ({"upstream_config": [f"sasl.pasword={SECRET}"]}, "--upstream-config: unknown property 'sasl.pasword'"),
        ({"upstream_config": [f"sasl.password={SECRET}"]}, "--upstream-config sasl.password has no effect with"),
        (
            {"upstream_config": ["security.protocol=SSL", "ssl.ca.location=/no"]},
            "--upstream-config ssl.ca.location=/no",
        ),
        ({"broker_base_port": 65_536}, "--broker-base-port=65536: should be less than or equal to 65535"),
        ({"listener_map": "1"}, "--listener-map=1: '1' should be ID=PORT, a node id and a port up to 65535"),
        ({"listener_map": "1=65536"}, "'1=65536' should be ID=PORT"),
        ({"listener_map": "1=9,1=10"}, "node id 1 is given twice"),
        ({"listener_map": ["1=9,2=8", "3=9"]}, "--listener-map=1=9,2=8,3=9: port 9 is given to two node ids"),
        ({"listener_map": "1=9,2=9"}, "port 9 is given to two node ids"),
        ({"listener_map": "1=9092"}, "--listener-map 1=9092: --listen has that port"),
        ({"listener_map": "1=99", "metrics": "127.0.0.1:99"}, "--listener-map 1=99: --metrics has that port"),
        ({"listen": "127.0.0.1:65535"}, "--listen 127.0.0.1:65535 leaves no ports above it for the brokers' listeners"),
        ({"listen": "0.0.0.0:9092"}, "--listen 0.0.0.0:9092: clients cannot be told that address; give --advertise"),
        ({"authorization_cache_ms": 60_001}, "--authorization-cache-ms=60001: should be less than or equal"),
        ({"tls_certificate": "a"}, "--tls-certificate also needs --tls-key"),
        ({"tls_key": "a"}, "--tls-key also needs --tls-certificate"),
        ({"tls_client_ca": "a"}, "--tls-client-ca also needs --tls-certificate"),
        ({"tls_certificate": "/no", "tls_key": "/no"}, "--tls-certificate=/no: it cannot be read: No such file"),
        (
            {"log": "sqlite:///a.db", "kafka_config": SASL},
            "--kafka-config is for an event log in Kafka, and --log is",
        ),
        (
            {"log": "kafka://c:1/e", "kafka_config": SASL},
            "--kafka-config security.protocol=SASL_PLAINTEXT needs sasl",
        ),
    ],
)
def test_invalid_settings_are_refused(flags: dict[str, Any], said: str) -> None:
    """In one line that names the options."""
    assert said in refused({"upstream": "kafka:9092", **flags})


@pytest.mark.parametrize(
    "flags",
    [
        {"upstream_config": ["security.protocol=SSL"]},
        {"broker_base_port": 9000},
        {"listener_map": "1=9000"},
        {"groups": ["*"]},
        {"authorization_cache_ms": 0},
        {"single_identity": True},
        {"single_identity_certificate": "a.pem"},
        {"single_identity_key": "a.key"},
        {"tls_certificate": "a.pem"},
        {"tls_key": "a.key"},
        {"tls_client_ca": "ca.pem"},
    ],
)
def test_without_an_upstream_its_settings_are_refused(flags: dict[str, Any]) -> None:
    """They would have no effect, unnoticed by the user."""
    (name,) = flags
    assert refused(flags).startswith(f"--{name.replace('_', '-')} without --upstream: only a sidecar")


def test_a_certificate_as_identity_is_everybodys(issued: Issued) -> None:
    """All clients share one principal then, so the user has to confirm it."""
    tls = [
        "security.protocol=SSL",
        f"ssl.certificate.location={issued.certificate}",
        f"ssl.key.location={issued.key}",
    ]
    refusal = refused({"upstream": "kafka:9092", "upstream_config": tls})
    assert "give --single-identity and a certificate for them if you want that" in refusal
    # A client that authenticates with SASL keeps its own identity, whatever certificate opened the connection.
    both = ["security.protocol=SASL_SSL", *tls[1:], *SASL[1:], "sasl.password=a"]
    assert sidecar(upstream_config=both).upstream_security().kafka_security().presents_certificate


def test_a_single_identity_is_never_musters_own(authority: Authority, issued: Issued) -> None:
    """That one may do what no client should. Without a second certificate the sidecar does not start."""
    tls = [
        "security.protocol=SSL",
        f"ssl.certificate.location={issued.certificate}",
        f"ssl.key.location={issued.key}",
    ]
    one = {"upstream": "kafka:9092", "upstream_config": tls, "single_identity": True}
    assert "needs --single-identity-certificate and --single-identity-key" in refused(one)
    assert "needs --single-identity-certificate" in refused({**one, "single_identity_certificate": issued.certificate})
    apps = authority.issue("apps")
    files = {"single_identity_certificate": apps.certificate, "single_identity_key": apps.key}
    assert "also need --single-identity" in refused({**one, **files, "single_identity": False})
    plain = {"upstream": "kafka:9092", "single_identity": True, **files}
    assert "needs --upstream-config security.protocol=SSL" in refused(plain)
    broken = {**files, "single_identity_key": authority.issue("other").key}
    assert "--single-identity-key" in refused({**one, **broken})
    own = {"single_identity_certificate": issued.certificate, "single_identity_key": issued.key}
    assert "is Muster's own (ssl.certificate.location)" in refused({**one, **own})
    security = sidecar(upstream_config=tls, single_identity=True, **files).upstream_security()
    assert security.relay_context() is not security.kafka_security().ssl_context


def test_clients_may_be_served_with_tls(authority: Authority, issued: Issued) -> None:
    """With client certificates, if an authority for them is given."""
    files = {"tls_certificate": issued.certificate, "tls_key": issued.key}
    assert sidecar(**files).client_tls() is not None
    assert "--tls-client-ca=/no: it cannot be read" in refused({"upstream": "a:1", **files, "tls_client_ca": "/no"})
    assert sidecar(**files, tls_client_ca=authority.certificate).client_tls() is not None


@pytest.mark.parametrize(
    ("variables", "flags", "said"),
    [
        ({"GROUPS": "a*"}, {}, "MUSTER_GROUPS without --upstream: only a sidecar"),
        ({"GROUPS": "a*"}, {"tls_key": "k"}, "MUSTER_GROUPS, --tls-key without --upstream"),
        ({"UPSTREAM_CONFIG_SASL_USERNAME": "u"}, {}, "MUSTER_UPSTREAM_CONFIG_SASL_USERNAME without --upstream"),
        ({"UPSTREAM": "a:1", "CLUSTER_ID": "c"}, {}, "MUSTER_CLUSTER_ID and MUSTER_UPSTREAM contradict each other"),
        ({"CONNECTIONS_MAX": "none"}, {}, "MUSTER_CONNECTIONS_MAX=none: should be a whole number"),
        ({"GROUP_MAX_SIZE": "0"}, {}, "MUSTER_GROUP_MAX_SIZE=0: should be greater than or equal to 1"),
        ({"LISTEN": "here"}, {"listen": "there"}, "--listen=there: should be HOST:PORT"),
        (
            {"UPSTREAM_CONFIG_SASL_MECHANISM": "none"},
            {"upstream": "a:1", "upstream_config": [*SASL[::2], f"sasl.password={SECRET}"]},
            "MUSTER_UPSTREAM_CONFIG_SASL_MECHANISM=none is none of",
        ),
        (
            {"UPSTREAM_CONFIG_SASL_MECHANISM": "none"},
            {"upstream": "a:1", "upstream_config": [*SASL[::2], "sasl.mechanism=nil", f"sasl.password={SECRET}"]},
            "--upstream-config sasl.mechanism=nil is none of",
        ),
        ({"LISTEN": "--log", "LOG": "memory:"}, {}, "MUSTER_LISTEN=--log: should be HOST:PORT"),
        ({"LISTEN": "--upstream-config"}, {}, "MUSTER_LISTEN=--upstream-config: should be HOST:PORT"),
        (
            {"TLS_CERTIFICATE": "/no/--log", "LOG": "memory:"},
            {"upstream": "a:1", "tls_key": "/no"},
            "MUSTER_TLS_CERTIFICATE=/no/--log: it cannot be read",
        ),
        (
            {"LOG": "memory:"},
            {"kafka_config": SASL},
            "--kafka-config is for an event log in Kafka, and MUSTER_LOG is memory:",
        ),
    ],
)
def test_values_from_the_environment_are_named_by_their_variable(
    variables: dict[str, str], flags: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"MUSTER_{name}", value)
    assert refused(flags).startswith(said)


def test_values_from_the_file_are_named_by_their_key(tmp_path: Path) -> None:
    file = tmp_path / "muster.toml"
    file.write_text('[config]\n"group.max.size" = 0\n')
    assert refused({}, file).startswith(f"{file}: group.max.size=0: should be")
    file.write_text('[kafka-config]\nsasl.username = "u"\n')
    assert refused({}, file).startswith(f"{file}: kafka-config is for an event log in Kafka, and --log is sqlite:")
    file.write_text('upstream = "a:1"\ntls-key = "k"\n')
    assert refused({}, file) == f"{file}: tls-key also needs --tls-certificate"
