"""Settings by flag, variable and file: each reaches its place, and all that is wrong is told."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from click.testing import CliRunner

from trainyard.cli.main import cli
from trainyard.operator.config.operator_settings import ServiceSettings
from trainyard.operator.config.setting_types import is_selector, render_duration
from trainyard.operator.config.settings_loader import (
    EffectiveSettings,
    InvalidSettings,
    PodEnvironment,
)
from trainyard.operator.config.settings_table import SETTINGS
from trainyard.schema import duration

OTHERS: dict[str, tuple[str, Any, Any]] = {
    "namespaces": ("team-b,team-a", ["team-b", "team-a"], ("team-b", "team-a")),
    "namespaceSelector": ("team in (a, b)", "team in (a, b)", "team in (a, b)"),
    "jobSelector": ("tier!=test,!old", "tier!=test,!old", "tier!=test,!old"),
    "kinds": ("GenericJob", ["GenericJob"], ("GenericJob",)),
    "gangScheduler": ("volcano", "volcano", "volcano"),
    "priorityClasses": ("0=low,50=urgent", ["0=low", "50=urgent"], ("0=low", "50=urgent")),
    "sshPort": ("2299", 2299, 2299),
    "masterPort": ("29501", 29501, 29501),
    "restartDelayInitial": ("1s", "1s", 1.0),
    "restartDelayMax": ("1h", 3600, 3600.0),
    "restartDelayReset": ("90", "1m30s", 90.0),
    "elasticSettle": ("0.5", 0.5, 0.5),
    "forceDeleteAfter": ("1m", "1m", 60.0),
    "clusterDomain": ("corp.example", "corp.example", "corp.example"),
    "tensorboards": ("false", False, False),
    "tensorboardImage": ("boards:1", "boards:1", "boards:1"),
    "workers": ("4", 4, 4),
    "parallelWrites": ("5", 5, 5),
    "retryDelayInitial": ("500ms", "500ms", 0.5),
    "retryDelayMax": ("2m", "2m", 120.0),
    "apiTimeout": ("5s", 5, 5.0),
    "apiRequestsAtOnce": ("7", 7, 7),
    "apiRequestsPerSecond": ("50", 50, 50),
    "leaderElect": ("false", False, False),
    "leaseNamespace": ("ops", "ops", "ops"),
    "leaseName": ("mine", "mine", "mine"),
    "leaseDuration": ("1m", "1m", 60.0),
    "leaseRenewDeadline": ("12s", "12s", 12.0),
    "leaseRetryPeriod": ("1s", 1.0, 1.0),
    "channel": ("false", False, False),
    "channelAddress": ("reports.ops.svc:7443", "reports.ops.svc:7443", "reports.ops.svc:7443"),
    "channelPort": ("8443", 8443, 8443),
    "channelEndpoint": ("10.0.0.1", "10.0.0.1", "10.0.0.1"),
    "progressInterval": ("30s", 30, 30.0),
    "host": ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
    "port": ("0", 0, 0),
    "metricsSecure": ("true", True, True),
    "metricsPort": ("8444", 8444, 8444),
    "metricsCertificates": ("/etc/tls", "/etc/tls", "/etc/tls"),
    "logLevel": ("debug", "debug", "debug"),
    "logFormat": ("json", "json", "json"),
    "jobMetrics": ("true", True, True),
    "record": ("/tmp/record", "/tmp/record", Path("/tmp/record")),
}
"""Of every setting a value that is not its default: as a text, in YAML, and where it goes."""


def effective(
    flags: dict[str, str] | None = None,
    environment: dict[str, str] | None = None,
    text: str = "",
    tmp_path: Path | None = None,
    around: PodEnvironment | None = None,
) -> EffectiveSettings:
    file = tmp_path / "settings.yaml" if tmp_path else None
    if file is not None:
        file.write_text(text)
    return EffectiveSettings(flags or {}, environment or {}, file, around or PodEnvironment())


def problems(*given: Any) -> list[str]:
    with pytest.raises(InvalidSettings) as caught:
        effective(*given)
    return list(caught.value.problems)


def place(settings: ServiceSettings, name: str) -> Any:
    if name == "leaderElect":
        return settings.lease is not None
    return attrgetter(SETTINGS[name].place)(settings)


def test_every_setting_has_a_value_here() -> None:
    assert list(OTHERS) == list(SETTINGS)


@pytest.mark.parametrize("name", SETTINGS)
def test_flag_variable_and_file_each_reach_the_same_place(name: str, tmp_path: Path) -> None:
    text, plain, value = OTHERS[name]
    setting = SETTINGS[name]
    file = yaml.safe_dump({name: plain})
    assert place(ServiceSettings(), name) != value
    for made in (
        effective({name: text}),
        effective({}, {setting.variable: text}),
        effective(text=file, tmp_path=tmp_path),
    ):
        assert place(made.settings, name) == value
    assert jsonschema_rs.is_valid(setting.values.schema(), plain)
    sources = {"flag": setting.flag, "environment variable": setting.variable}
    for way, source in sources.items():
        flags, environment = ({name: text}, {}) if way == "flag" else ({}, {setting.variable: text})
        assert f"  # {way} {source}\n" in effective(flags, environment).text()


def test_a_flag_counts_before_a_variable_and_that_before_the_file(tmp_path: Path) -> None:
    names = ("sshPort", "workers", "port", "parallelWrites")
    file = "sshPort: 3001\nworkers: 1\nport: 3003\n"
    made = effective(
        {"sshPort": "1001"},
        {"TRAINYARD_OPERATOR_SSH_PORT": "2001", "TRAINYARD_OPERATOR_WORKERS": "2"},
        file,
        tmp_path,
    )
    assert [made[name] for name in names] == [1001, 2, 3003, 32]


def test_what_is_printed_is_a_file_that_says_the_same(tmp_path: Path) -> None:
    """Defaults that come from where the process runs included."""
    around = PodEnvironment("ops", "search ns.svc.corp.example svc.corp.example")
    chosen = {name: text for name, (text, _, _) in OTHERS.items() if name != "namespaceSelector"}
    for flags in ({}, chosen):
        made = effective(flags, around=around)
        again = effective(text=made.text(), tmp_path=tmp_path)
        assert again.settings == made.settings
    assert effective(around=around).settings.operator.lifecycle.cluster_domain == "corp.example"


@pytest.mark.parametrize(
    ("flags", "own", "lease"),
    [
        ({}, None, ("default", "trainyard-controller")),
        ({}, "ops", ("ops", "trainyard-controller")),
        ({"namespaces": "a"}, "ops", ("a", "trainyard-controller-a")),
        ({"namespaces": "a,b"}, "ops", ("ops", "trainyard-controller-b2899738")),
        ({"namespaces": "b,a"}, None, ("b", "trainyard-controller-b2899738")),
        ({"namespaces": "a", "leaseNamespace": "x"}, "ops", ("x", "trainyard-controller-a")),
        ({"leaseName": "x"}, "ops", ("ops", "x")),
    ],
)
def test_the_lease_follows_what_is_looked_after(
    flags: dict[str, str], own: str | None, lease: tuple[str, str]
) -> None:
    found = effective(flags, around=PodEnvironment(own)).settings.lease
    assert found is not None
    assert (found.namespace, found.name) == lease


def test_operators_that_look_after_different_jobs_have_different_leases() -> None:
    scopes: list[dict[str, str]] = [
        {},
        {"namespaces": "a"},
        {"namespaces": "a,b"},
        {"jobSelector": "a=b"},
        {"kinds": "GenericJob"},
        {"namespaceSelector": "a=b"},
        {"namespaces": "a", "jobSelector": "a=b"},
    ]
    names = {effective(flags)["leaseName"] for flags in scopes}
    assert len(names) == len(scopes)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("sshPort", text) for text in ("0", "65536", "22x", "1.5", "-1")),
        *(("leaseDuration", text) for text in ("15 s", "0", "-1", "nan", "inf", "2h", "s")),
        *(("namespaces", text) for text in ("Team", "a,", "a b", "a," + "b" * 64)),
        *(("jobSelector", text) for text in ("a in b", "a,", "a=b=c", "=", "a in ()x", "a b")),
        ("leaseName", "a_b"),
        ("clusterDomain", "a..b"),
        ("tensorboards", "yes"),
        ("gangScheduler", "slurm"),
    ],
)
def test_what_cannot_be_is_refused(name: str, text: str) -> None:
    (told,) = problems({name: text})
    flag = SETTINGS[name].flag
    assert told.startswith(f"setting {name}, from flag {flag}: '{text}' is not ")
    variable = SETTINGS[name].variable
    (told,) = problems({}, {variable: text})
    assert told.startswith(f"setting {name}, from environment variable {variable}: ")


@pytest.mark.parametrize(
    "line",
    [
        *("sshPort: '2222'", "sshPort: 22.5", "sshPort: true", "sshPort: [2222]"),
        *("namespaces: team", "namespaces: [1]", "tensorboards: yes", "leaseDuration: true"),
        *("leaseDuration: ten", "host: 1", "jobSelector: {a: b}"),
    ],
)
def test_a_file_has_the_types_of_yaml(line: str, tmp_path: Path) -> None:
    (told,) = problems({}, {}, line, tmp_path)
    name = line.partition(":")[0]
    assert told.startswith(f"setting {name}, from file {tmp_path}/settings.yaml: ")
    assert not jsonschema_rs.is_valid(
        SETTINGS[name].values.schema(), yaml.safe_load(line.replace("yes", "'yes'"))[name]
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sshPort: 1\nsshPort: 2", r"/settings.yaml:2: found duplicate key"),
        ("a: [", "/settings.yaml:1: expected the node content"),
        ("- sshPort", "it must hold a mapping, such as sshPort: 2222"),
        ("sshport: 1", "there is no setting sshport; did you mean sshPort?"),
        ("zzz: 1", "there is no setting zzz; --print-config lists all"),
    ],
)
def test_a_file_that_cannot_be_used_is_told(text: str, told: str, tmp_path: Path) -> None:
    assert told in problems({}, {}, text, tmp_path)[0]


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"cannot read .*absent: No such file"):
        EffectiveSettings({}, {}, tmp_path / "absent")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (
            {"leaseDuration": "10s"},
            "leaseDuration (10s, from flag --lease-duration) must be more than setting leaseRenew",
        ),
        ({"leaseRetryPeriod": "9s"}, "leaseRenewDeadline (10s, from default) must be more than"),
        ({"restartDelayMax": "1s"}, "must be at least setting restartDelayInitial (10s"),
        ({"retryDelayInitial": "1m", "retryDelayMax": "1s"}, "retryDelayMax"),
        ({"sshPort": "29500"}, "are one port of the same pod"),
        ({"namespaces": "a", "namespaceSelector": "a"}, "exclude each other: unset one"),
    ],
)
def test_settings_that_contradict_each_other_are_told(flags: dict[str, str], told: str) -> None:
    (problem,) = problems(flags)
    assert told in problem


def test_all_problems_are_told_together(tmp_path: Path) -> None:
    environment = {"TRAINYARD_OPERATOR_WORKER": "3", "TRAINYARD_OPERATOR_PORT": "x"}
    found = problems({"sshPort": "0"}, environment, "wrokers: 3", tmp_path)
    assert len(found) == 4
    assert any("did you mean TRAINYARD_OPERATOR_WORKERS?" in each for each in found)


def test_variables_that_kubernetes_gives_for_a_service_are_no_settings() -> None:
    """Of a Service named trainyard-operator, in every pod of its namespace."""
    address = "tcp://10.0.0.1:8080"
    links = {
        "PORT": address,
        "PORT_8080_TCP": address,
        "PORT_8080_TCP_ADDR": "10.0.0.1",
        "PORT_8080_TCP_PORT": "8080",
        "PORT_8080_TCP_PROTO": "tcp",
        "SERVICE_HOST": "10.0.0.1",
        "SERVICE_PORT": "8080",
        "SERVICE_PORT_METRICS": "8080",
    }
    environment = {f"TRAINYARD_OPERATOR_{name}": value for name, value in links.items()}
    assert effective({}, environment).settings == effective().settings


@pytest.mark.parametrize("seconds", [0.0, 0.001, 0.25, 1.0, 59.5, 90.0, 3600.0, 86399.999])
def test_durations_are_read_as_they_are_written(seconds: float) -> None:
    assert duration.parse(render_duration(seconds)).total_seconds() == seconds


@pytest.mark.parametrize(
    "text",
    ["a", "!a", "a=b", "a==b", "a!=b", "a=", "x.io/a in (b,c)", "a notin (b)", "a, b=c , !d"],
)
def test_selectors_of_every_form_are_taken(text: str) -> None:
    assert is_selector(text)


def test_the_command_prints_what_is_in_force(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("logLevel: debug\n")
    ask = ["operator", "--print-config", "-n", "a", "--namespace", "b", "--no-tensorboards"]
    environment = {"TRAINYARD_OPERATOR_CONFIG": str(file), "TRAINYARD_OPERATOR_WORKERS": "3"}
    printed = CliRunner().invoke(cli, ask, env=environment, catch_exceptions=False).output
    for line in (
        "namespaces: [a, b]  # flag --namespace",
        "tensorboards: false  # flag --tensorboards",
        "workers: 3  # environment variable TRAINYARD_OPERATOR_WORKERS",
        f"logLevel: debug  # file {file}",
        "sshPort: 2222  # default",
    ):
        assert f"\n{line}\n" in printed
    refused = CliRunner().invoke(cli, ["operator", "--ssh-port", "x"])
    assert refused.exit_code == 2
    assert "setting sshPort, from flag --ssh-port: 'x' is not a whole number" in refused.output
