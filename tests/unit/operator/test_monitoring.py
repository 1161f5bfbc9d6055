"""Alert rules and dashboard: they name what the operator has, and fire when they should."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families
from tools.monitoring import FOLDER, dashboard, generated, groups

from tests.simulation.virtual_time import run
from tests.tools import promtool
from tests.unit.operator.test_operator_metrics import Yard, life

_NAMES = re.compile(r"\b((?:trainyard|process)_\w+)")
_LABELS = re.compile(r"\b(?:trainyard|process)_\w+\{([^}]*)\}|by \(([^)]*)\)")
_QUOTED = re.compile(r"`(trainyard_\w+)`")
_ROW = re.compile(r"^\| `(trainyard_\w+)`")
PAGE = Path(__file__).parents[3] / "docs/operations/metrics.md"
FROM_SCRAPING = {"namespace", "job", "pod"}
PARTS = {"expr", "record", "alert"}


def expressions() -> Iterator[str]:
    for group in groups():
        for rule in group["rules"]:
            yield rule["expr"]
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def test_every_metric_and_label_is_one_that_the_operator_has() -> None:
    async def main() -> str:
        yard = Yard()
        await life(yard)
        return yard.text()

    families = list(text_string_to_metric_families(run(main())))
    samples = [sample for family in families for sample in family.samples]
    known = {sample.name for sample in samples} | {"trainyard_watch_restarts_total"}
    labels = {name for sample in samples for name in sample.labels} | FROM_SCRAPING
    for expr in expressions():
        names = set(_NAMES.findall(re.sub(r"\"[^\"]*\"", '""', expr)))
        assert names - {"trainyard_"} <= known, expr
        for selected, grouped in _LABELS.findall(expr):
            matched = re.findall(r"(\w+)\s*(?:=~|!=|=)", selected)
            assert {*matched, *filter(None, re.split(r",\s*", grouped))} <= labels, expr
    assert len(known & {name for expr in expressions() for name in _NAMES.findall(expr)}) > 15


def test_the_page_of_metrics_has_those_that_the_operator_has() -> None:
    async def main() -> str:
        yard = Yard(has_job_series=True)
        await life(yard)
        return yard.text()

    exposed = set(re.findall(r"# TYPE (trainyard_\w+)", run(main())))
    page = PAGE.read_text()
    rows = {n for row in page.splitlines() if row[:1] == "|" for n in _ROW.findall(row)}
    assert rows <= exposed <= set(_QUOTED.findall(page))


def test_files_are_what_would_be_written_and_panels_do_not_overlap() -> None:
    for path, text in generated().items():
        assert path.read_text() == text, "make generate"
    taken: set[tuple[int, int]] = set()
    for panel in json.loads((FOLDER / "dashboard.json").read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    labelled = {"job": "trainyard-operator", "namespace": "trainyard", **labels}
    inside = ",".join(f'{key}="{value}"' for key, value in labelled.items())
    return {"series": f"{name}{{{inside}}}", "values": values}


def starting(slow: int) -> list[dict[str, str]]:
    """Ten jobs a minute, of which some start slowly."""
    name = "trainyard_job_start_seconds"
    return [
        series("trainyard_leader", "1x400", pod="a"),
        series(f"{name}_bucket", f"0+{10 - slow}x400", le="300.0"),
        series(f"{name}_bucket", "0+10x400", le="+Inf"),
        series(f"{name}_count", "0+10x400"),
    ]


LEADS = series("trainyard_leader", "1x100", pod="a")
CASES: list[tuple[list[dict[str, str]], str, set[str]]] = [
    ([LEADS], "30m", set()),
    ([series("trainyard_leader", "0x100", pod="a")], "10m", {"TrainyardNoLeader"}),
    ([], "10m", {"TrainyardNoLeader"}),
    (
        [series("trainyard_leader", "0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1", pod="a")],
        "20m",
        {"TrainyardLeaderFlaps"},
    ),
    ([LEADS, series("trainyard_problems", "0x5 2x95", pod="a")], "20m", {"TrainyardOutOfReach"}),
    (
        [LEADS, series("trainyard_jobs_waiting_oldest_seconds", "0+60x100", job_kind="K")],
        "95m",
        {"TrainyardJobsStuck"},
    ),
    (
        [LEADS, series("trainyard_jobs_waiting", "2x100", reason="CreationRefused")],
        "20m",
        {"TrainyardJobsRefused"},
    ),
    ([LEADS, series("trainyard_queue_oldest_seconds", "40x100")], "20m", {"TrainyardQueueSlow"}),
    (
        [
            LEADS,
            series("trainyard_passes_total", "0+1x100", result="error"),
            series("trainyard_passes_total", "0+5x100", result="done"),
        ],
        "40m",
        {"TrainyardPassesFail"},
    ),
    (
        [
            LEADS,
            series("trainyard_api_requests_total", "0+1x100", code="<error>"),
            series("trainyard_api_requests_total", "0+9x100", code="200"),
        ],
        "40m",
        {"TrainyardApiErrors"},
    ),
    (
        [LEADS, series("trainyard_events_lost_total", "0x20 0+1x80", reason="refused")],
        "30m",
        {"TrainyardEventsLost"},
    ),
    (starting(0), "390m", set()),
    (starting(4), "390m", {"TrainyardJobsStartSlowlyWarning"}),
    (
        starting(8),
        "390m",
        {"TrainyardJobsStartSlowlyCritical", "TrainyardJobsStartSlowlyWarning"},
    ),
]


def test_promtool_takes_the_rules_and_sees_each_alert_fire(tmp_path: Path) -> None:
    rules = FOLDER / "alerts.yaml"
    _promtool("check", "rules", "--lint=all", "--lint-fatal", str(rules))
    tests = [
        {
            "interval": "1m",
            "input_series": inputs,
            "promql_expr_test": [
                {
                    "expr": 'count by (alertname) (ALERTS{alertstate="firing"}) > 0 '
                    'or vector(0) unless on() ALERTS{alertstate="firing"}',
                    "eval_time": at,
                    "exp_samples": _expected(names),
                }
            ],
        }
        for inputs, at, names in CASES
    ]
    everything = {name for _, _, names in CASES for name in names}
    alerts = {rule["alert"] for group in groups() for rule in group["rules"] if "alert" in rule}
    assert everything == alerts
    file = tmp_path / "tests.yaml"
    body: dict[str, Any] = {"rule_files": [str(rules)], "tests": tests}
    file.write_text(yaml.safe_dump(body))
    _promtool("test", "rules", str(file))


def _expected(names: set[str]) -> list[dict[str, Any]]:
    if not names:
        return [{"labels": "{}", "value": 0}]
    return [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)]


def _promtool(*arguments: str) -> None:
    done = subprocess.run([promtool(), *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
