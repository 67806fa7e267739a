"""The alerts, the dashboard and the runbook only name existing things, and the rules work as described."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.coordinator.observability.every_metric import every_metric, every_name

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
RULES: Final = DEPLOY / "prometheus-rules.yml"
RUNBOOK: Final = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
NAME: Final = re.compile(r"\b(?:muster|process|python)_[a-z_]+")
OF_PROMETHEUS: Final = {"up"}
LABELS_OF_PROMETHEUS: Final = {"service", "instance", "job"}


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> Iterator[dict[str, Any]]:
    yield from json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))["panels"]


def queries() -> list[str]:
    """All that the dashboard asks for."""
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
    requested = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    requested += [each["expr"] for each in dashboard["annotations"]["list"]]
    return requested + [each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]


def names_in(query: str) -> set[str]:
    """Return the metrics of a query, without quoted text and labels."""
    return set(NAME.findall(re.sub(r'"[^"]*"', "", query)))


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_an_alert_uses_existing_metrics_and_gives_advice(alert: dict[str, Any]) -> None:
    """In one line, and in a section of the runbook."""
    assert names_in(alert["expr"]) <= every_name()
    assert names_in(alert["expr"]) or OF_PROMETHEUS & set(re.findall(r"\w+", alert["expr"]))
    assert alert["labels"]["severity"] in {"page", "ticket"}
    assert {"summary", "runbook", "runbook_url"} <= alert["annotations"].keys()
    assert alert["annotations"]["runbook_url"] == f"docs/runbook.md#{alert['alert'].lower()}"
    section = RUNBOOK.split(f"### {alert['alert']}\n")
    assert len(section) == 2, "the runbook has a section of each alert, once"
    assert f"*{alert['labels']['severity']}.*" in section[1].split("\n#")[0]


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_the_advice_of_an_alert_has_the_words_of_the_runbook(alert: dict[str, Any]) -> None:
    """They are the first paragraph of its section, after the severity."""
    section = RUNBOOK.split(f"### {alert['alert']}\n")[1]
    first = " ".join(section.strip().split("\n\n")[0].split()).removeprefix(f"*{alert['labels']['severity']}.* ")
    plain = first.replace("`", "").removesuffix(".")
    assert alert["annotations"]["runbook"] == plain[0].lower() + plain[1:]


def test_the_runbook_has_no_alert_that_is_gone() -> None:
    assert set(re.findall(r"^### (\w+)$", RUNBOOK, re.MULTILINE)) == {alert["alert"] for alert in alerts()}


@pytest.mark.parametrize(
    "reason",
    [
        "has been unavailable",
        "no broker",
        "is not served",
        "partitions are being read",
        "has not answered",
        "the processes of the event log are sharing its partitions",
        "this process has reached no owner of a partition",
        "starting",
        "the event log is being opened",
        "stopping",
        "it is being started",
        "it does not answer",
        "no file is free",
    ],
)
def test_the_runbook_has_a_way_out_of_each_reason_that_a_process_is_not_ready(reason: str) -> None:
    """In the wording of the process."""
    reported = [*(ROOT / "coordinator").rglob("*.py"), *(ROOT / "events").rglob("*.py")]
    assert any(reason in file.read_text(encoding="utf-8") for file in reported)
    table = RUNBOOK.split("### MusterNotReady\n")[1].split("\n#")[0]
    assert any(reason in row.split("|")[1] for row in table.splitlines() if row.startswith("| "))


def test_links_of_the_runbook_lead_to_existing_sections_and_pages() -> None:
    sections = {heading.lower() for heading in re.findall(r"^#+ (\w+)$", RUNBOOK, re.MULTILINE)}
    for target in re.findall(r"\]\(([^)]+)\)", RUNBOOK):
        path, _, section = target.partition("#")
        assert (ROOT / "docs" / path).exists() if path else section in sections, target


def test_the_dashboard_uses_existing_metrics() -> None:
    assert len(queries()) > 30
    for query in queries():
        found = names_in(query)
        assert found, query
        assert found <= every_name(), query


def test_labels_used_in_queries_are_those_of_the_metrics() -> None:
    """A selector with a label that no series has matches nothing, and that goes unnoticed."""
    known = set(LABELS_OF_PROMETHEUS)
    for metric in every_metric():
        for sample in metric.samples:
            known |= sample.labels.keys()
    known |= {"le", "kind", "reason", "cause", "phase", "ended", "api", "version", "limit", "group"}
    for query in [*queries(), *(alert["expr"] for alert in alerts())]:
        for selector in re.findall(r"\{([^}]*)\}", query):
            assert set(re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', selector)) <= known, query


def test_panels_have_room_and_ids_of_their_own() -> None:
    """None lies over another one, none is wider than the page."""
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    for panel in panels():
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def promtool(*arguments: str) -> str:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not there (Debian's package prometheus has it): the rules were not tried")
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_accepts_the_rules(tmp_path: Path) -> None:
    assert f"{len(alerts())} rules found" in promtool("check", "rules", str(RULES))
    promtool("check", "config", str(DEPLOY / "prometheus.yml"))
    config = yaml.safe_load((DEPLOY / "prometheus-kubernetes.yml").read_text(encoding="utf-8"))
    (job,) = config["scrape_configs"]
    assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]  # distributions build promtool without it
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump({**config, "rule_files": [str(RULES)]}), encoding="utf-8")
    promtool("check", "config", str(tmp_path / "prometheus.yml"))


def test_the_rules_behave_as_described(tmp_path: Path) -> None:
    """On series that are made up."""
    reported = (Path(__file__).parent / "rules_test.yml").read_text(encoding="utf-8")
    (tmp_path / "rules_test.yml").write_text(reported.replace("RULES", str(RULES)), encoding="utf-8")
    promtool("test", "rules", str(tmp_path / "rules_test.yml"))


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_each_alert_is_among_those(alert: dict[str, Any]) -> None:
    reported = (Path(__file__).parent / "rules_test.yml").read_text(encoding="utf-8")
    assert re.search(rf"\b{alert['alert']}\b", reported)


def test_every_query_of_the_dashboard_can_be_parsed(tmp_path: Path) -> None:
    """As a rule, with Grafana's variables substituted."""
    rules = [
        {"record": f"query:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(queries())
        if not query.startswith("label_values")
    ]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
    promtool("check", "rules", str(file))
