"""The compose file, the image, the unit and the manifests, by their schemas and tools, and by Muster's own settings."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import compose_spec
import kubernetes_validate
import pytest
import yaml

from muster.coordinator.settings.loading import load_settings
from muster.coordinator.settings.settings import Settings

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
COMPOSE: Final = DEPLOY / "compose.yaml"
UNIT: Final = (DEPLOY / "muster.service").read_text(encoding="utf-8")


def settings_of(arguments: list[str], file: Path | None = None) -> Settings:
    """The settings that `muster serve` makes of its arguments. Raises BadSettings."""
    flags: dict[str, Any] = {}
    for argument in arguments:
        name, _, value = argument.removeprefix("--").partition("=")
        field = name.replace("-", "_")
        is_list = isinstance(Settings.model_fields[field].get_default(call_default_factory=True), list)
        given: Any = value or True
        flags[field] = [*flags.get(field, []), given] if is_list else given
    return load_settings(flags, [], file)


# ---- compose --------------------------------------------------------------------------------------


def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    return found


def test_the_compose_file_is_one_by_its_specification() -> None:
    told = re.sub(r"\$\{\w+:-([^}]+)\}", r"\1", COMPOSE.read_text(encoding="utf-8"))
    read = compose_spec.PyCompose.from_json(json.dumps(yaml.safe_load(told)))
    assert set(read.service_names()) == services().keys()


def test_every_image_is_a_variable_with_a_default() -> None:
    """So that a mirror can be named."""
    for name, service in services().items():
        assert re.fullmatch(r"\$\{MUSTER_[A-Z_]*IMAGE:-[\w./-]+:[\w.-]+\}", service["image"]), name
    (base,) = {each["build"]["args"]["BASE_IMAGE"] for each in services().values() if "build" in each}
    assert re.fullmatch(r"\$\{MUSTER_BASE_IMAGE:-python:3\.\d+-slim\}", base)


def test_what_the_services_need_is_there() -> None:
    """Others, volumes, and files beside the compose file."""
    content = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    for name, service in services().items():
        assert set(service.get("depends_on", ())) <= services().keys(), name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            is_there = (DEPLOY / source).is_file() if source.startswith(".") else source in content["volumes"]
            assert is_there, (name, volume)
        if "build" in service:
            assert (COMPOSE.parent / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


def test_each_muster_of_the_compose_file_would_start() -> None:
    """Two owners of one log, each under a node id and an address of its own, and a sidecar."""
    loaded = {}
    for name, service in services().items():
        if service["image"].startswith("${MUSTER_IMAGE"):
            command, *arguments = service["command"]
            assert command == "serve", name
            loaded[name] = settings_of(arguments)
    owners = [each for each in loaded.values() if each.upstream is None]
    assert len(owners) == 2
    assert len({each.log for each in owners}) == 1
    assert len({each.node_id for each in owners}) == len({each.advertise for each in owners}) == 2
    assert all(each.share_partitions for each in owners)
    assert [name for name, each in loaded.items() if each.upstream is not None] == ["sidecar"]
    for name, settings in loaded.items():
        assert settings.advertise is not None
        assert settings.advertise.partition(":")[0] == name


def test_prometheus_scrapes_each_muster_where_it_offers_metrics() -> None:
    (job,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    scraped = {target for each in job["static_configs"] for target in each["targets"]}
    offered = {
        f"{name}:{settings_of(service['command'][1:]).metrics.rpartition(':')[2]}"  # type: ignore[union-attr]
        for name, service in services().items()
        if service["image"].startswith("${MUSTER_IMAGE")
    }
    assert scraped == offered
    assert all("service" in each["labels"] for each in job["static_configs"])


# ---- the image ------------------------------------------------------------------------------------


def test_what_the_image_is_made_of_is_there_and_not_left_out() -> None:
    """Each COPY names what is in the checkout, and the list of what the build may see has it."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    assert text.index("ARG BASE_IMAGE=") < text.index("FROM ${BASE_IMAGE}")
    seen = set(re.findall(r"^!(\S+)$", (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8"), re.MULTILINE))
    copied = {
        source.removeprefix("./")
        for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE)
        for source in shlex.split(line)[:-1]
    }
    assert copied == seen
    assert all((ROOT / source).exists() for source in copied)
    links = {path.readlink().name for path in (ROOT / "src" / "muster").iterdir() if path.is_symlink()}
    assert links <= copied, "the package is links to these folders"
    assert "USER 65532:65532" in text


def test_the_image_is_made_where_an_engine_and_a_base_image_are_there() -> None:
    """`MUSTER_BASE_IMAGE` names an image that the engine has, or may have."""
    base, engine = os.environ.get("MUSTER_BASE_IMAGE"), shutil.which("docker") or shutil.which("podman")
    if base is None or engine is None:
        pytest.skip("the image was not made: MUSTER_BASE_IMAGE names none, or there is no container engine")
    made = [engine, "build", "--file", str(DEPLOY / "Dockerfile"), "--build-arg", f"BASE_IMAGE={base}", "--quiet", "."]
    done = subprocess.run(made, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    asked = [engine, "run", "--rm", done.stdout.strip(), "--version"]
    assert subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout.startswith("muster ")


# ---- the unit -------------------------------------------------------------------------------------


def test_the_unit_is_one_for_systemd(tmp_path: Path) -> None:
    """With an executable that is there."""
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not there: the unit was not tried")
    file = tmp_path / "muster.service"
    file.write_text(UNIT.replace("/opt/muster/bin/muster", sys.executable), encoding="utf-8")
    done = subprocess.run([tool, "verify", str(file)], capture_output=True, text=True, check=False, timeout=60)
    about = [line for line in (done.stdout + done.stderr).splitlines() if "muster.service" in line]
    assert about == []
    asked = [tool, "security", "--offline=true", "--threshold=20", str(file)]
    judged = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
    assert judged.returncode == 0, judged.stdout.splitlines()[-1:]


def test_the_unit_starts_muster_with_options_that_there_are() -> None:
    """And does not start it again when its settings cannot be used."""
    (command,) = re.findall(r"^ExecStart=(.+)$", UNIT, re.MULTILINE)
    program, serve, *options = shlex.split(command)
    assert (Path(program).name, serve) == ("muster", "serve")
    fields = {"config-file", *(name.replace("_", "-") for name in Settings.model_fields)}
    assert {option.removeprefix("--") for option in options if option.startswith("--")} <= fields
    assert "RestartPreventExitStatus=2" in UNIT


# ---- Kubernetes -----------------------------------------------------------------------------------


def manifests(file: str) -> list[dict[str, Any]]:
    return [*yaml.safe_load_all((DEPLOY / "kubernetes" / file).read_text(encoding="utf-8"))]


@pytest.mark.parametrize("file", sorted(path.name for path in (DEPLOY / "kubernetes").iterdir()))
def test_manifests_are_ones_by_kubernetes_own_schema(file: str) -> None:
    """Strictly: no member that does not exist."""
    for manifest in manifests(file):
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_the_owners_of_the_manifests_would_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From their file, with what the pod's name makes of the variables."""
    by_kind = {each["kind"]: each for each in manifests("owners.yaml")}
    file = tmp_path / "muster.toml"
    file.write_text(by_kind["ConfigMap"]["data"]["muster.toml"], encoding="utf-8")
    assert "share-partitions" in tomllib.loads(file.read_text(encoding="utf-8"))
    pod = by_kind["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"] == ["serve", "--config-file", "/etc/muster/muster.toml"]
    given = {each["name"]: each for each in container["env"]}
    monkeypatch.setenv("MUSTER_NODE_ID", "1")
    advertise = given["MUSTER_ADVERTISE"]["value"]
    filled = advertise.replace("$(POD_NAME)", "muster-1").replace("$(POD_NAMESPACE)", "kafka")
    monkeypatch.setenv("MUSTER_ADVERTISE", filled)
    settings = load_settings({}, [], file)
    assert (settings.node_id, settings.share_partitions) == (1, True)
    service = next(each for each in manifests("owners.yaml") if each["metadata"]["name"] == "muster-nodes")
    assert settings.advertise == f"muster-1.{service['metadata']['name']}.kafka.svc.cluster.local:9092"
    assert by_kind["StatefulSet"]["spec"]["serviceName"] == service["metadata"]["name"]
    ports = {each["containerPort"] for each in container["ports"]}
    assert {int(settings.listen.rpartition(":")[2]), int((settings.metrics or "").rpartition(":")[2])} == ports
    assert pod["terminationGracePeriodSeconds"] >= 20  # it hands over within 5 s, and tells its clients for 3.5 s


def test_the_sidecar_of_the_manifests_would_start_before_the_application() -> None:
    """As an init container that goes on, ready before the application is begun."""
    (deployment,) = manifests("sidecar.yaml")
    pod = deployment["spec"]["template"]["spec"]
    (sidecar,) = pod["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    command, *arguments = sidecar["args"]
    assert command == "serve"
    settings = settings_of(arguments)
    assert settings.upstream is not None
    (application,) = pod["containers"]
    assert {"name": "KAFKA_BOOTSTRAP_SERVERS", "value": str(settings.listen)} in application["env"]
    assert sidecar["startupProbe"]["httpGet"]["path"] == "/readyz"
