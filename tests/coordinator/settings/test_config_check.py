"""Settings are checked as a whole before anything starts; `muster config check` prints the effective ones with their
sources.
"""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from muster import cli
from muster.coordinator.settings.loading import BadSettings, load_settings
from muster.coordinator.settings.settings import Settings
from muster.variables import sets_nothing

SECRET = "hunter2"
WIDE = {"COLUMNS": "200"}


def checked(*arguments: str, **variables: str) -> Result:
    return CliRunner().invoke(cli.app, ["config", "check", *arguments], env={**WIDE, **variables})


def given_by(result: Result) -> dict[str, tuple[str, str]]:
    """The value and source of each setting, from a check with --format json."""
    return {each["name"]: (each["value"], each["given_by"]) for each in json.loads(result.stdout)["settings"]}


def test_each_setting_is_shown_with_its_value_and_source(tmp_path: Path) -> None:
    """A flag, a variable, the file, or nothing; Kafka's settings by Kafka's name."""
    file = tmp_path / "muster.toml"
    file.write_text('listen = "127.0.0.1:1"\ntopic = ["a:1", "b"]\n[config]\n"group.max.size" = 3\n')
    options = ["--config-file", str(file), "--node-id", "7", "--format", "json"]
    found = given_by(checked(*options, MUSTER_GROUP_MAX_SESSION_TIMEOUT_MS="60000"))
    assert found["node-id"] == ("7", "--node-id")
    assert found["group.max.session.timeout.ms"] == ("60000", "MUSTER_GROUP_MAX_SESSION_TIMEOUT_MS")
    assert found["listen"] == ("127.0.0.1:1", f"{file}: listen")
    assert found["topic"] == ("a:1,b", f"{file}: topic")
    assert found["group.max.size"] == ("3", f"{file}: group.max.size")
    assert found["answer-lease-ms"] == ("2000", "default")
    settings_without_names = set(Settings.model_fields) - {"upstream_config", "kafka_config"}
    assert len(found) == len(settings_without_names)


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    """Neither in the table nor in JSON; user names are."""
    options = ["--upstream", "kafka:9092", "--upstream-config", "security.protocol=SASL_PLAINTEXT"]
    options += ["--upstream-config", "sasl.mechanism=PLAIN", "--upstream-config", "sasl.username=muster"]
    forms = ("table", "json")
    done = [checked(*options, "--format", form, MUSTER_UPSTREAM_CONFIG_SASL_PASSWORD=SECRET) for form in forms]
    assert [(each.exit_code, SECRET in each.output) for each in done] == [(0, False)] * 2
    found = given_by(done[1])
    assert found["upstream-config sasl.password"] == ("(hidden)", "MUSTER_UPSTREAM_CONFIG_SASL_PASSWORD")
    assert found["upstream-config sasl.username"] == ("muster", "--upstream-config sasl.username")
    assert found["log"] == ("kafka://kafka:9092/__muster_events", "default")


def test_the_table_has_a_line_for_each_setting() -> None:
    done = checked("--node-id", "7")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("node-id ")]
    assert line.split() == ["node-id", "7", "--node-id"]


def test_all_errors_are_shown_at_once_each_in_one_line(tmp_path: Path) -> None:
    """In flags, `--config`, variables and the file; and contradictions among the usable ones."""
    file = tmp_path / "muster.toml"
    file.write_text('colour = 1\nlistten = 2\nmetrics = "127.0.0.1:9092"\n[config]\n"group.max.sise" = 1\n')
    options = ["--config-file", str(file), "--config", "group.max.size", "--config", "nonsense=1", "--topic", "a:x"]
    options += ["--kafka-config", "sasl.pasword=x", "--log", "postgres://db"]
    done = checked(*options, MUSTER_GROUP_MIN_SESSION_TIMEOUT_MS="much", MUSTER_UPSTREAM_CONFIG_SASL_USER="x")
    assert done.exit_code == 2
    lines = done.stderr.splitlines()
    assert all(line.startswith("muster: ") for line in lines)
    wanted = (
        "--config 'group.max.size' should be KEY=VALUE",
        "there is no setting 'nonsense'",
        "there is no setting 'colour'",
        "did you mean listen?",
        "did you mean group.max.size?",
        "did you mean sasl.password?",
        "MUSTER_UPSTREAM_CONFIG_SASL_USER: unknown variable",
        "MUSTER_GROUP_MIN_SESSION_TIMEOUT_MS=much: should be a duration, such as 30s, 5m or 1500ms, or a number of ms",
        "--topic=a:x",
        "--listen 127.0.0.1:9092 has that port",
        "--log: 'postgres://db' is not the URL of an event log",
    )
    for each in wanted:
        assert len([line for line in lines if each in line]) == 1, (each, lines)
    assert len(lines) == len(wanted), lines


def test_a_setting_that_cannot_be_used_does_not_contradict_others_too() -> None:
    """It then has its default, which the user did not set."""
    config = ["group.min.session.timeout.ms=much", "group.max.session.timeout.ms=100"]
    with pytest.raises(BadSettings) as bad:
        load_settings({}, config, None)
    wanted = "should be a duration, such as 30s, 5m or 1500ms, or a number of ms"
    assert str(bad.value) == f"group.min.session.timeout.ms=much: {wanted}"


def test_serve_refuses_with_the_same_lines() -> None:
    arguments = ["--topic", "a:x", "--config", "nonsense=1"]
    serving = CliRunner().invoke(cli.app, ["serve", *arguments], env=WIDE)
    assert (serving.exit_code, serving.stderr) == (2, checked(*arguments).stderr)
    assert len(serving.stderr.splitlines()) == 2


@pytest.mark.parametrize(
    ("variable", "value", "found"),
    [
        ("MUSTER_COLOUR", "blue", [("MUSTER_COLOUR", None)]),
        ("MUSTER_TOPICS", "a", [("MUSTER_TOPICS", "MUSTER_TOPIC")]),
        ("muster_port", "9092", [("muster_port", None)]),
        ("MUSTER_PORT", "tcp://10.0.0.1:9092", []),
        ("MUSTER_PORT_9092_TCP_ADDR", "10.0.0.1", []),
        ("MUSTER_PORT_9092_UDP", "udp://10.0.0.1:9092", []),
        ("MUSTER_SERVICE_HOST", "10.0.0.1", []),
        ("MUSTER_SERVICE_PORT_METRICS", "9100", []),
        ("MUSTER_NODES_SERVICE_HOST", "10.0.0.1", []),
        ("MUSTER_NODES_PORT", "tcp://10.0.0.1:9092", []),
        ("MUSTER_NODES_PORT_9092_TCP_PROTO", "tcp", []),
        ("MUSTER_TEST_BOOTSTRAP", "x", []),
        ("MUSTER_KAFKA_IMAGE", "x", []),
        ("MUSTER_LOG", "memory:", []),
        ("MUSTER_BOOTSTRAP", "x", []),
        ("MUSTER_UPSTREAM_CONFIG_SASL_PASSWORD", "x", []),
        ("OTHER", "x", []),
    ],
)
def test_an_unused_variable_is_named(variable: str, value: str, found: list[tuple[str, str | None]]) -> None:
    """But not the variables that Kubernetes sets for services called muster, or muster-nodes."""
    assert sets_nothing({variable: value, "PATH": "/"}, Settings.model_fields) == found


def test_a_check_warns_of_such_variables_and_refuses_nothing() -> None:
    done = checked("--format", "json", MUSTER_COLOUR="blue", MUSTER_PORT="tcp://10.0.0.1:9092")
    assert (done.exit_code, done.stderr) == (0, "muster: MUSTER_COLOUR sets nothing\n")
    assert json.loads(done.stdout)["settings"]


def test_the_check_takes_whatever_serve_takes() -> None:
    """Both have the same signature."""
    output = {
        name: CliRunner().invoke(cli.app, [*name.split(), "--help"], env=WIDE).stdout
        for name in ("serve", "config check")
    }
    for field in ("listen", "upstream", "metrics-groups", "config-file"):
        assert all(f"--{field}" in text for text in output.values()), field
