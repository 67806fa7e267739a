"""Sources of settings, their precedence, and the errors for unusable ones."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from muster import cli
from muster.coordinator.group.settings import GroupSettings
from muster.coordinator.net.limits import ConnectionLimits
from muster.coordinator.settings.kafka_settings import KAFKA_SETTINGS
from muster.coordinator.settings.loading import BadSettings, load_settings
from muster.coordinator.settings.options import help_of
from muster.coordinator.settings.setting_sources import PROPERTY_FIELDS
from muster.coordinator.settings.settings import Settings
from muster.variables import mistyped, sets_nothing


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the environment."""
    for name in ("MUSTER_LOG", "MUSTER_LISTEN", "MUSTER_TOPIC", "MUSTER_GROUP_MAX_SIZE"):
        monkeypatch.delenv(name, raising=False)


def test_the_defaults_are_kafkas() -> None:
    """Without any settings the rules have Kafka's values."""
    settings = load_settings({}, [], None)
    assert settings.group_settings() == GroupSettings()
    effective = settings.effective_group_settings()
    assert effective["group.max.session.timeout.ms"] == "1800000"
    assert effective["offsets.retention.check.interval.ms"] == "600000"
    assert set(KAFKA_SETTINGS) == {
        "group.initial.rebalance.delay.ms",
        "group.min.session.timeout.ms",
        "group.max.session.timeout.ms",
        "group.max.size",
        "offset.metadata.max.bytes",
        "offsets.retention.minutes",
        "offsets.retention.check.interval.ms",
    }


def test_the_default_connection_limits_do_not_depend_on_settings() -> None:
    """Except that one principal leaves some for others."""
    limits = load_settings({}, [], None).connection_limits()
    assert limits == ConnectionLimits(connections_per_principal=9_000)


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each source only fills in what the previous ones left open."""
    file = tmp_path / "muster.toml"
    file.write_text(
        'listen = "127.0.0.1:1"\nlog-level = "debug"\ntopic = ["a:1", "b:2"]\n'
        '[config]\n"group.max.size" = 3\n"group.min.session.timeout.ms" = 30\n'
    )
    monkeypatch.setenv("MUSTER_GROUP_MAX_SIZE", "2")
    monkeypatch.setenv("MUSTER_LISTEN", "127.0.0.1:2")
    settings = load_settings({"listen": "127.0.0.1:3"}, [], file)
    assert settings.listen == "127.0.0.1:3"
    assert settings.group_max_size == 2
    assert settings.group_min_session_timeout_ms == 30
    assert settings.log_level == "debug"
    assert [(topic.name, topic.partitions) for topic in settings.topics()] == [("a", 1), ("b", 2)]


def test_kafkas_longest_interval_is_valid() -> None:
    """Long.MAX_VALUE switches sweeps off."""
    settings = load_settings({}, [f"offsets.retention.check.interval.ms={2**63 - 1}"], None)
    assert settings.group_settings().offsets_retention_check_interval_ms == 2**63 - 1


def test_topics_in_the_environment_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists in a unit file are usually written like this."""
    monkeypatch.setenv("MUSTER_TOPIC", "orders:12, payments")
    assert [topic.name for topic in load_settings({}, [], None).topics()] == ["orders", "payments"]


@pytest.mark.parametrize(
    ("flags", "config", "said"),
    [
        ({"listen": "nowhere"}, [], "--listen=nowhere: should be HOST:PORT"),
        ({"listen": "127.0.0.1:99999"}, [], "--listen=127.0.0.1:99999: should be HOST:PORT"),
        ({"topic": ["orders:1", "orders:2"]}, [], "topic 'orders' is declared twice"),
        ({"topic": ["orders:zero"]}, [], "--topic=orders:zero: 'orders:zero' should be NAME:PARTITIONS"),
        (
            {"listen": "0.0.0.0:9092"},
            [],
            "--listen 0.0.0.0:9092: clients cannot be told that address; give --advertise",
        ),
        ({"listen": "[::]:9092", "advertise": "[::]:1"}, [], "--advertise [::]:1: clients cannot be told that address"),
        ({"log_level": "loud"}, [], "--log-level=loud: should be 'debug', 'info', 'warning' or 'error'"),
        ({"frame_bytes_max": 5}, [], "--frame-bytes-max=5: should be greater than or equal to 1024"),
        ({}, ["group.max.sise=5"], "there is no setting 'group.max.sise'; did you mean group.max.size?"),
        ({}, ["quite.another=5"], "there is no setting 'quite.another'; muster serve --help lists them"),
        ({}, ["group.max.size"], "--config 'group.max.size' should be KEY=VALUE"),
        ({}, ["group.max.size=0"], "group.max.size=0: should be greater than or equal to 1"),
        (
            {},
            ["offsets.retention.minutes=0"],
            "offsets.retention.minutes=0: should be greater than or equal to 1",
        ),
        ({}, ["offsets.retention.check.interval.ms=0"], "offsets.retention.check.interval.ms=0: should be"),
        ({}, ["group.max.size=many"], "group.max.size=many: should be a whole number"),
        (
            {},
            ["group.min.session.timeout.ms=10", "group.max.session.timeout.ms=5"],
            "group.min.session.timeout.ms=10 is above group.max.session.timeout.ms=5",
        ),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_with_its_value(
    flags: dict[str, object], config: list[str], said: str
) -> None:
    """With the way out."""
    with pytest.raises(BadSettings) as raised:
        load_settings(flags, config, None)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("listen = ", "is not a TOML file"),
        ("listten = 1", "there is no setting 'listten'; did you mean listen?"),
        ("broker-bas-port = 1", "there is no setting 'broker-bas-port'; did you mean broker-base-port?"),
        ("group.max.size = 1", "group.max.size belongs in the table [config]"),
        ('"group.max.size" = 1', "group.max.size belongs in the table [config]"),
        ("colour = 1", "there is no setting 'colour'; muster serve --help lists them"),
        ('[config]\n"group.max.sise" = 1', "did you mean group.max.size?"),
        ("config = 3", "[config] should be a table"),
        ("connections-max = true", "connections-max=true: only a flag may be true or false"),
        ('[config]\n"group.max.size" = true', "group.max.size=true: only a flag may be true or false"),
        (f"log = {'[' * 100_000}", "cannot be read: its values are nested too deeply"),
    ],
    ids=range(11),
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str, said: str) -> None:
    """With the error in it."""
    file = tmp_path / "muster.toml"
    file.write_text(text)
    with pytest.raises(BadSettings, match=str(file)) as raised:
        load_settings({}, [], file)
    assert said in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """With the system's own message."""
    with pytest.raises(BadSettings, match="No such file"):
        load_settings({}, [], tmp_path / "none.toml")


def test_the_file_may_be_named_in_the_environment(tmp_path: Path) -> None:
    """Like every option; its errors have its name."""
    file = tmp_path / "none.toml"
    done = CliRunner().invoke(cli.app, ["serve"], env={"MUSTER_CONFIG_FILE": str(file)})
    assert (done.exit_code, done.stderr) == (
        2,
        f"muster: cannot read MUSTER_CONFIG_FILE {file}: No such file or directory\n",
    )


def test_addresses_beside_the_table_of_upstream_have_a_way_out(tmp_path: Path) -> None:
    file = tmp_path / "muster.toml"
    file.write_text('upstream = "kafka:9092"\n[upstream]\nsecurity.protocol = "SSL"\n', encoding="utf-8")
    with pytest.raises(BadSettings, match=r"the addresses of \[upstream\] are its bootstrap.servers$"):
        load_settings({}, [], file)


@pytest.mark.parametrize(
    ("field", "default"),
    [
        ("listen", " [default: 127.0.0.1:9092]"),
        ("advertise", ""),
        ("topic", ""),
        ("group_max_size", " [default: 2147483647]"),
    ],
)
def test_the_help_of_a_setting_ends_with_its_default_if_it_has_one(field: str, default: str) -> None:
    info = Settings.model_fields[field]
    assert help_of(info) == f"{info.description}{default}"


def test_no_name_is_cut_in_the_help_of_a_narrow_terminal() -> None:
    """A column of options would shorten long names with an ellipsis, so there is none."""
    printed = CliRunner().invoke(cli.app, ["serve", "--help"], env={"COLUMNS": "80", "TERM": "dumb"}).stdout
    assert "\u2026" not in printed
    for name in ("ssl.endpoint.identification.algorithm", "MUSTER_UPSTREAM_CONFIG_", "group.max.size"):
        assert name in printed


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("MUSTER_GROUP_MAX_SISE", "MUSTER_GROUP_MAX_SIZE"),
        ("MUSTER_TOPICS", "MUSTER_TOPIC"),
        ("MUSTER_LOGS", "MUSTER_LOG"),
        ("MUSTER_CONNECTION_MAX", "MUSTER_CONNECTIONS_MAX"),
        ("MUSTER_GROUP_MAX_SIZE", None),
        ("muster_log", None),
        ("MUSTER_BOOTSTRAP", None),
        ("MUSTER_CONFIG_FILE", None),
        ("MUSTER_CONFIG_FILES", "MUSTER_CONFIG_FILE"),
        ("MUSTER_UPSTREAM_CONFIG_SASL_PASSWORD", None),
        ("MUSTER_TEST_BOOTSTRAP", None),
        ("MUSTER_SERVICE_HOST", None),
        ("MUSTER_SERVICE_PORT", None),
        ("MUSTER_SERVICE_PORT_METRICS", None),
        ("MUSTER_PORT", None),
        ("MUSTER_PORT_9092_TCP", None),
        ("MUSTER_PORT_9092_TCP_PROTO", None),
        ("MUSTER_PORT_9092_TCP_ADDR", None),
        ("TOPICS", None),
    ],
)
def test_a_variable_that_sets_nothing_is_found_where_another_is_near(variable: str, meant: str | None) -> None:
    """Those that Kubernetes sets for a service `muster` resemble none."""
    fields = Settings.model_fields.keys() - PROPERTY_FIELDS
    found = sets_nothing({"PATH": "/bin", variable: "x", "MUSTER_LOG": "memory:"}, fields)
    assert [near for near in found if near[1] is not None] == ([] if meant is None else [(variable, meant)])


def test_no_setting_of_serve_is_taken_for_a_typo_by_another_command() -> None:
    """One environment may be for both."""
    assert mistyped({f"MUSTER_{field.upper()}": "x" for field in Settings.model_fields}) == []
    assert mistyped({"MUSTER_BOOTSTRAPS": "x", "MUSTER_OTHER": "x"}) == [("MUSTER_BOOTSTRAPS", "MUSTER_BOOTSTRAP")]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"no_hot_standbys": True}, "--no-hot-standbys is for --share-partitions, which is not given"),
        ({"snapshot_interval_ms": 5_000}, "--snapshot-interval-ms is for --snapshots, which is not given"),
        ({"snapshots": "folder"}, "--snapshots needs an event log in Kafka, and --log is sqlite:///muster.db"),
    ],
)
def test_a_setting_of_a_missing_part_is_named(given: dict[str, Any], said: str) -> None:
    """It would have no effect, unnoticed."""
    with pytest.raises(BadSettings) as raised:
        load_settings(given, [], None)
    assert str(raised.value) == said


def test_a_sharing_process_is_a_standby_unless_switched_off_or_it_owns_nothing() -> None:
    """A frontend takes nothing over."""
    sharing = {"share_partitions": True, "node_id": 3, "log": "kafka://kafka:9092/groups"}
    assert not load_settings({}, [], None).stands_by
    assert load_settings(sharing, [], None).stands_by
    assert not load_settings({**sharing, "no_hot_standbys": True}, [], None).stands_by
    secret = {"upstream": "kafka:9092", "peer_listen": "127.0.0.1:9500", "peer_secret_file": __file__}
    assert not load_settings({**sharing, **secret, "role": "edge"}, [], None).stands_by


def test_a_time_is_a_duration_or_a_number_of_ms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flag, variable, file and Kafka's name accept the same; errors have the way out."""
    file = tmp_path / "muster.toml"
    file.write_text('snapshot-interval-ms = "2m"\nsnapshots = "here"\nlog = "kafka://a:1/b"\n[config]\n'
                    '"group.max.session.timeout.ms" = "1h"\n"group.min.session.timeout.ms" = 1000\n')  # fmt: skip
    monkeypatch.setenv("MUSTER_ANSWER_LEASE_MS", "3s")
    config = ["group.initial.rebalance.delay.ms=5s", "offsets.retention.check.interval.ms=60000"]
    settings = load_settings({"audit_window_ms": "7d", "unread_answers_max_ms": "60000"}, config, file)
    assert (settings.audit_window_ms, settings.unread_answers_max_ms) == (7 * 86_400_000, 60_000)
    assert (settings.snapshot_interval_ms, settings.answer_lease_ms) == (120_000, 3_000)
    assert (settings.group_max_session_timeout_ms, settings.group_min_session_timeout_ms) == (3_600_000, 1_000)
    assert settings.group_initial_rebalance_delay_ms == 5_000
    assert settings.offsets_retention_check_interval_ms == 60_000
    with pytest.raises(BadSettings, match="--audit-window-ms=7x: should be a duration, such as 30s, 5m or 1500ms"):
        load_settings({"audit_window_ms": "7x"}, [], None)
    with pytest.raises(BadSettings, match="--unread-answers-max-ms=5: should be greater than or equal to 1000"):
        load_settings({"unread_answers_max_ms": "5ms"}, [], None)
