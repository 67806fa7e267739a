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

from muster.coordinator.processes.supervisor import FRONTENDS_STOP_WITHIN_S, OWNER_STOPS_WITHIN_S
from muster.coordinator.settings.loading import load_settings
from muster.coordinator.settings.settings import Settings
from tests.brokers.certificates import Authority
from tests.brokers.image import PUBLIC_IMAGE

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
COMPOSE: Final = ROOT / "compose.yaml"
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


def test_the_compose_file_meets_its_specification() -> None:
    filled = default_of(COMPOSE.read_text(encoding="utf-8"))
    read = compose_spec.PyCompose.from_json(json.dumps(yaml.safe_load(filled)))
    assert set(read.service_names()) == services().keys()


def test_every_image_is_a_variable_with_a_default() -> None:
    """So that a mirror can be named."""
    for name, service in services().items():
        assert re.fullmatch(r"\$\{MUSTER_[A-Z_]*IMAGE:-[\w./-]+:[\w.-]+\}", service["image"]), name
    (base,) = {each["build"]["args"]["BASE_IMAGE"] for each in services().values() if "build" in each}
    assert re.fullmatch(r"\$\{MUSTER_BASE_IMAGE:-python:3\.\d+-slim\}", base)


def test_everything_the_services_need_exists() -> None:
    """Others, volumes, and files beside the compose file."""
    content = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    for name, service in services().items():
        assert set(service.get("depends_on", ())) <= services().keys(), name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            is_there = (ROOT / source).is_file() if source.startswith(".") else source in content["volumes"]
            assert is_there, (name, volume)
        if "build" in service:
            assert (COMPOSE.parent / service["build"]["context"] / service["build"]["dockerfile"]).is_file()


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the processes prove to each other, by the names of both ways to make it."""
    folder = tmp_path_factory.mktemp("peers")
    authority = Authority(folder / "authority")
    certificate = authority.issue("muster")
    for names in (("ca.pem", "certificate.pem", "key.pem"), ("ca.crt", "tls.crt", "tls.key")):
        for name, file in zip(names, (authority.certificate, certificate.certificate, certificate.key), strict=True):
            shutil.copy(file, folder / name)
    (folder / "secret").write_text("0" * 32, encoding="utf-8")
    return folder


def at(folder: Path, arguments: list[str]) -> list[str]:
    return [each.replace("/run/peers", str(folder)) for each in arguments]


def muster_of_compose(monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The settings of its Muster. Raises BadSettings."""
    service = services()["muster"]
    for name, value in service["environment"].items():
        monkeypatch.setenv(name, value)
    command, *arguments = service["command"]
    assert command == "serve"
    return settings_of(arguments)


def test_the_muster_of_the_compose_file_is_in_front_of_its_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would start, and its event log is in the same cluster."""
    settings = muster_of_compose(monkeypatch)
    (listener,) = re.findall(r"INSIDE://([\w:-]+)", services()["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"])
    assert settings.upstream == listener
    assert settings.log == f"kafka://{listener}/__muster_events"
    assert settings.log_replication == 1


def test_the_peers_secrets_are_made_by_the_commands_of_the_page(tmp_path: Path) -> None:
    """As far as openssl is concerned."""
    page = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    commands = "\n".join(re.findall(r"^\$ (openssl .+)$", page, re.MULTILINE))
    subprocess.run(["/bin/sh", "-ec", commands], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    certificate, key, authority = (tmp_path / each for each in ("tls.crt", "tls.key", "ca.crt"))
    flags = [f"--peer-tls-certificate={certificate}", f"--peer-tls-key={key}", f"--peer-tls-ca={authority}"]
    peer = ["--share-partitions", "--upstream=kafka:9092", "--node-id=1", "--peer-listen=muster-1:9500"]
    settings = settings_of([*peer, *flags, f"--peer-secret-file={tmp_path / 'secret'}"])
    assert settings.peer_tls() is not None


def test_prometheus_scrapes_muster_where_it_offers_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    (job,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    (scraped,) = job["static_configs"]
    _, _, port = (muster_of_compose(monkeypatch).metrics or "").rpartition(":")
    assert scraped["targets"] == [f"muster:{port}"]
    assert "service" in scraped["labels"]
    assert f"http://127.0.0.1:{port}/readyz" in services()["muster"]["healthcheck"]["test"][-1]


def test_the_clients_of_the_compose_file_are_behind_muster(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer, and consumers of one group, each of its own name: one is static, one leaves, one is killed."""
    advertised = muster_of_compose(monkeypatch).advertise
    clients = {name: each["command"] for name, each in services().items() if re.match("producer|consumer", name)}
    for name, command in clients.items():
        assert f"--bootstrap-server={advertised}" in command, name
    consumers = [command for name, command in clients.items() if name != "producer"]
    assert all("--group=billing" in command for command in consumers)
    assert len({each for command in consumers for each in command if "client.id=" in each}) == len(consumers) == 3
    assert sum("group.instance.id" in each for command in consumers for each in command) == 1
    assert sorted(command[1] for command in consumers) == ["-sKILL", "-sTERM", "-sTERM"]


def test_mounts_of_the_compose_file_are_where_they_are_read() -> None:
    mounted = {}
    for service in services().values():
        for volume in service.get("volumes", ()):
            source, target, *_ = volume.split(":")
            if source.startswith("."):
                mounted[Path(source).name] = Path(target)
    (provider,) = yaml.safe_load((DEPLOY / "grafana" / "dashboards.yaml").read_text(encoding="utf-8"))["providers"]
    dashboard = mounted["grafana-dashboard.json"]
    assert Path(provider["options"]["path"]) == dashboard.parent
    environment = services()["grafana"]["environment"]
    assert environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == str(dashboard)
    assert mounted["prometheus-rules.yml"].parent == mounted["prometheus.yml"].parent  # it names them without a folder


def test_grafana_asks_prometheus_as_often_as_it_scrapes() -> None:
    """Or the shortest range of a rate would have too few points, and panels stay empty."""
    (source,) = yaml.safe_load((DEPLOY / "grafana" / "datasource.yaml").read_text(encoding="utf-8"))["datasources"]
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
    assert source["jsonData"]["timeInterval"] == config["global"]["scrape_interval"]
    address = source["url"].removeprefix("http://")
    assert any(port.endswith(address.removeprefix("prometheus")) for port in services()["prometheus"]["ports"])


def test_only_this_machine_reaches_what_the_compose_file_publishes() -> None:
    published = [port for service in services().values() for port in service.get("ports", ())]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_each_service_of_the_compose_file_has_a_limit_of_memory_and_of_logs() -> None:
    for name, service in services().items():
        assert re.fullmatch(r"\d+[mg]", service["mem_limit"]), name
        assert "max-size" in service["logging"]["options"], name


def test_images_are_of_the_versions_that_are_tested() -> None:
    """Kafka's is the one of the tests' brokers, and Muster's base that of its Dockerfile."""
    images = {name: default_of(each["image"]) for name, each in services().items()}
    assert images["kafka"] == PUBLIC_IMAGE
    base = default_of(services()["muster"]["build"]["args"]["BASE_IMAGE"])
    assert f"ARG BASE_IMAGE={base}\n" in (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


def default_of(variable: str) -> str:
    return re.sub(r"\$\{\w+:-([^}]+)\}", r"\1", variable)


def test_the_header_of_the_compose_file_is_true() -> None:
    """Its addresses are published, and the services of its commands are there."""
    header = COMPOSE.read_text(encoding="utf-8").split("\nname:")[0]
    published = {port.rpartition(":")[0] for each in services().values() for port in each.get("ports", ())}
    for address in re.findall(r"127\.0\.0\.1:\d+", header.replace("status 127.0.0.1:9100", "")):
        assert address in published, address
    for service in re.findall(r"docker compose (?:exec|up -d) (\w+)", header):
        assert service in services()


# ---- the image ------------------------------------------------------------------------------------


def test_files_of_the_image_exist_and_are_not_ignored() -> None:
    """Each COPY names files of the checkout that .dockerignore lets through."""
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


def test_the_image_is_built_if_an_engine_and_a_base_image_exist() -> None:
    """`MUSTER_BASE_IMAGE` names an image that the engine has, or may have."""
    base, engine = os.environ.get("MUSTER_BASE_IMAGE"), shutil.which("docker") or shutil.which("podman")
    if base is None or engine is None:
        pytest.skip("the image was not made: MUSTER_BASE_IMAGE names none, or there is no container engine")
    made = [engine, "build", "--file", str(DEPLOY / "Dockerfile"), "--build-arg", f"BASE_IMAGE={base}", "--quiet", "."]
    done = subprocess.run(made, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    output = [engine, "run", "--rm", done.stdout.strip(), "--version"]
    assert subprocess.run(output, capture_output=True, text=True, check=True, timeout=60).stdout.startswith("muster ")


# ---- the unit -------------------------------------------------------------------------------------


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """With an executable that is there."""
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not there: the unit was not tried")
    file = tmp_path / "muster.service"
    file.write_text(UNIT.replace("/opt/muster/bin/muster", sys.executable), encoding="utf-8")
    done = subprocess.run([tool, "verify", str(file)], capture_output=True, text=True, check=False, timeout=60)
    about = [line for line in (done.stdout + done.stderr).splitlines() if "muster.service" in line]
    assert about == []
    arguments = [tool, "security", "--offline=true", "--threshold=20", str(file)]
    judged = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=60)
    assert judged.returncode == 0, judged.stdout.splitlines()[-1:]


def test_the_unit_starts_muster_with_existing_options() -> None:
    """And does not start it again when its settings cannot be used."""
    (command,) = re.findall(r"^ExecStart=(.+)$", UNIT, re.MULTILINE)
    program, serve, *options = shlex.split(command)
    assert (Path(program).name, serve) == ("muster", "serve")
    fields = {"config-file", *(name.replace("_", "-") for name in Settings.model_fields)}
    assert {option.removeprefix("--") for option in options if option.startswith("--")} <= fields
    assert "RestartPreventExitStatus=2" in UNIT


def test_the_unit_has_files_for_all_connections() -> None:
    """A sidecar takes two for each, and 1,200 are kept for all else."""
    (given,) = re.findall(r"^LimitNOFILE=(\d+)$", UNIT, re.MULTILINE)
    assert int(given) >= 2 * int(Settings.model_fields["connections_max"].default) + 1_200


@pytest.mark.parametrize("way", ["compose", "systemd", "owners", "sidecar"])
def test_stop_timeouts_cover_the_slowest_shutdown(way: str) -> None:
    """With `--processes` the edges are stopped first, and then their owner; if killed earlier, it has handed nothing
    over.
    """
    if way == "systemd":
        (given,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    elif way == "compose":
        (given,) = {each["stop_grace_period"].removesuffix("s") for each in services().values() if "build" in each}
    else:
        ((given,),) = [
            [each["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]]
            for each in manifests(f"{way}.yaml")
            if each["kind"] in {"StatefulSet", "Deployment"}
        ]
    assert int(given) > FRONTENDS_STOP_WITHIN_S + OWNER_STOPS_WITHIN_S


# ---- Kubernetes -----------------------------------------------------------------------------------


def manifests(file: str) -> list[dict[str, Any]]:
    return [*yaml.safe_load_all((DEPLOY / "kubernetes" / file).read_text(encoding="utf-8"))]


@pytest.mark.parametrize("file", sorted(path.name for path in (DEPLOY / "kubernetes").iterdir()))
def test_manifests_meet_the_schema_of_kubernetes(file: str) -> None:
    """Strictly: no member that does not exist."""
    for manifest in manifests(file):
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_the_owners_of_the_manifests_would_start(tmp_path: Path, peers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From their file, with what the pod's name makes of the variables."""
    by_kind = {each["kind"]: each for each in manifests("owners.yaml")}
    file = tmp_path / "muster.toml"
    (reported,) = at(peers, [by_kind["ConfigMap"]["data"]["muster.toml"]])
    file.write_text(reported, encoding="utf-8")
    assert "share-partitions" in tomllib.loads(file.read_text(encoding="utf-8"))
    pod = by_kind["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"] == ["serve", "--config-file", "/etc/muster/muster.toml"]
    given = {each["name"]: each for each in container["env"]}
    monkeypatch.setenv("MUSTER_NODE_ID", "1")
    advertise = given["MUSTER_PEER_ADVERTISE"]["value"]
    filled = advertise.replace("$(POD_NAME)", "muster-1").replace("$(POD_NAMESPACE)", "kafka")
    monkeypatch.setenv("MUSTER_PEER_ADVERTISE", filled)
    settings = load_settings({}, [], file)
    assert (settings.node_id, settings.share_partitions, settings.role) == (1, True, "owner")
    service = by_kind["Service"]
    assert settings.peer_advertise == f"muster-1.{service['metadata']['name']}.kafka.svc.cluster.local:9500"
    assert by_kind["StatefulSet"]["spec"]["serviceName"] == service["metadata"]["name"]
    ports = {each["containerPort"] for each in container["ports"]}
    told_ports = {int((each or "").rpartition(":")[2]) for each in (settings.peer_listen, settings.metrics)}
    assert told_ports == ports == {each["port"] for each in service["spec"]["ports"]}
    assert_mounted(pod, container)


def test_the_edge_of_the_manifests_would_start_before_the_application(peers: Path) -> None:
    """As an init container that keeps running, ready before the application starts; in front of the owners' cluster."""
    (deployment,) = manifests("sidecar.yaml")
    pod = deployment["spec"]["template"]["spec"]
    (sidecar,) = pod["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    command, *arguments = [each.replace("$(POD_IP)", "10.1.2.3") for each in sidecar["args"]]
    assert command == "serve"
    named = {name for each in sidecar["args"] for name in re.findall(r"\$\((\w+)\)", each)}
    assert named <= {each["name"] for each in sidecar["env"]}
    settings = settings_of(at(peers, arguments))
    (owners,) = [each for each in manifests("owners.yaml") if each["kind"] == "ConfigMap"]
    of_owners = tomllib.loads(owners["data"]["muster.toml"])
    assert (settings.role, settings.share_partitions, settings.upstream) == ("edge", True, of_owners["upstream"])
    (application,) = pod["containers"]
    assert {"name": "KAFKA_BOOTSTRAP_SERVERS", "value": str(settings.listen)} in application["env"]
    assert sidecar["startupProbe"]["httpGet"]["path"] == "/readyz"
    assert_mounted(pod, sidecar)


@pytest.mark.parametrize("file", ["owners.yaml", "sidecar.yaml"])
def test_probes_use_existing_endpoints(file: str) -> None:
    """At a port that has that name."""
    (template,) = [each["spec"]["template"]["spec"] for each in manifests(file) if "template" in each.get("spec", {})]
    (container,) = [each for each in (*template["containers"], *template.get("initContainers", ())) if "ports" in each]
    probes = [container[name] for name in container if name.endswith("Probe")]
    assert len(probes) >= 2
    for probe in probes:
        assert probe["httpGet"]["path"] in {"/healthz", "/readyz"}
        assert probe["httpGet"]["port"] in {each["name"] for each in container["ports"]}


def test_owners_reach_each_other_before_they_are_ready_and_restart_one_at_a_time() -> None:
    by_kind = {each["kind"]: each["spec"] for each in manifests("owners.yaml") if "spec" in each}
    assert by_kind["Service"]["publishNotReadyAddresses"]
    assert by_kind["PodDisruptionBudget"]["maxUnavailable"] == 1 < by_kind["StatefulSet"]["replicas"]


def rules_of_scraping() -> dict[str, list[dict[str, Any]]]:
    """The relabeling of both ways to scrape, in Prometheus's own form, from the discovery of a pod's port on."""
    (job,) = yaml.safe_load((DEPLOY / "prometheus-kubernetes.yml").read_text(encoding="utf-8"))["scrape_configs"]
    monitor = yaml.safe_load((DEPLOY / "podmonitor.yaml").read_text(encoding="utf-8"))["spec"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    ((selected, operator),) = [each.values() for each in monitor["selector"]["matchExpressions"]]
    assert (monitor["namespaceSelector"], operator) == ({"any": True}, "Exists")
    by_operator = [
        {
            "source_labels": ["__meta_kubernetes_pod_label_" + selected.replace("-", "_")],
            "action": "keep",
            "regex": ".+",
        },
        {"source_labels": ["__meta_kubernetes_pod_container_port_name"], "action": "keep", "regex": endpoint["port"]},
        {"target_label": "job", "replacement": "namespace/muster"},
    ]
    given = [{re.sub("L", "_l", name): value for name, value in rule.items()} for rule in endpoint["relabelings"]]
    of_job: dict[str, Any] = {"target_label": "job", "replacement": job["job_name"]}
    return {"operator": [*by_operator, *given], "prometheus": [of_job, *job["relabel_configs"]]}


def relabeled(labels: dict[str, str], rules: list[dict[str, Any]]) -> dict[str, str] | None:
    """The labels of a target, as Prometheus makes them of what it discovered; None: it is not scraped."""
    for rule in rules:
        value = ";".join(labels.get(name, "") for name in rule.get("source_labels", ()))
        matched = re.fullmatch(rule.get("regex", "(.*)"), value)
        if rule.get("action", "replace") == "keep":
            if matched is None:
                return None
        elif matched is not None:
            filled = matched.expand(rule.get("replacement", "$1").replace("$1", r"\1"))
            labels = {**labels, rule["target_label"]: filled}
    return {name: value for name, value in labels.items() if not name.startswith("__")}


@pytest.mark.parametrize("way", ["operator", "prometheus"])
@pytest.mark.parametrize(("file", "kind"), [("owners.yaml", "StatefulSet"), ("sidecar.yaml", "Deployment")])
def test_pods_are_scraped_with_the_labels_that_the_alerts_ask_for(file: str, kind: str, way: str) -> None:
    """Muster's port alone, whatever the application beside it has; owners and edges of one log are one service."""
    (template,) = [each["spec"]["template"] for each in manifests(file) if each["kind"] == kind]
    containers = [*template["spec"]["containers"], *template["spec"].get("initContainers", ())]
    ports = [port["name"] for container in containers for port in container.get("ports", ())]
    pod = {
        "__meta_kubernetes_namespace": "shop",
        "__meta_kubernetes_pod_name": "pod-0",
        **{
            "__meta_kubernetes_pod_label_" + re.sub(r"\W", "_", name): value
            for name, value in template["metadata"]["labels"].items()
        },
    }
    scraped = [
        labels
        for port in [*ports, "metrics"]
        if (labels := relabeled({**pod, "__meta_kubernetes_pod_container_port_name": port}, rules_of_scraping()[way]))
    ]
    (labels,) = scraped
    assert (labels["job"], labels["service"]) == ("muster", "muster")
    rules = (DEPLOY / "prometheus-rules.yml").read_text(encoding="utf-8")
    assert set(re.findall(r'job="([^"]+)"', rules)) == {labels["job"]}
    assert relabeled({"__meta_kubernetes_pod_container_port_name": "metrics"}, rules_of_scraping()[way]) is None


def assert_mounted(pod: dict[str, Any], container: dict[str, Any]) -> None:
    """The Secret with what the processes prove to each other, where the settings look for it."""
    assert {"name": "peers", "mountPath": "/run/peers", "readOnly": True} in container["volumeMounts"]
    (secret,) = [each["secret"] for each in pod["volumes"] if each["name"] == "peers"]
    page = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
    assert f"kubectl create secret generic {secret['secretName']} " in page
