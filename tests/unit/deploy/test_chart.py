"""The chart, rendered by Helm itself: it makes what `trainyard manifests` prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tools.chart_values import VALUES

from tests.helm import CHART, Refused, asked, lint, render
from trainyard.kinds.shared.job_settings import GangBackend
from trainyard.operator.config.settings_loader import EffectiveSettings
from trainyard.operator.install.install_manifests import Install, manifests

Object = dict[str, Any]
IMAGE = {"image": {"repository": "registry/trainyard"}}
ALL = {
    "name": "jobs",
    "image": {"repository": "registry/trainyard", "digest": "sha256:abc", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "registry"}],
    "replicas": 3,
    "settings": {
        "sshPort": 2299,
        "leaseDuration": "1m",
        "namespaces": ["team-a", "team-b"],
        "metricsSecure": True,
    },
    "resources": {"limits": {"memory": "1Gi"}},
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "system", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "jobs"}},
        }
    ],
    "priorityClassName": "system-cluster-critical",
    "podLabels": {"team": "platform"},
    "podAnnotations": {"note": "true"},
    "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "volumes": [{"name": "records", "emptyDir": {}}],
    "volumeMounts": [{"name": "records", "mountPath": "/records"}],
    "serviceAccount": {"name": "robot"},
    "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {}}]},
    "serviceMonitor": {"enabled": True, "interval": "10s"},
}
"""Everything that can be said, said."""
NOTHING = {
    **IMAGE,
    **{name: {"install": False} for name in ("definitions", "policies")},
    **{name: {"create": False} for name in ("serviceAccount", "rbac", "aggregatedRoles")},
    **{name: {"enabled": False} for name in ("service", "podDisruptionBudget")},
    "settings": {"channel": False},
}
SCOPES: tuple[dict[str, Any], ...] = (
    {},
    {"namespaces": ["team-a", "team-b"]},
    {"namespaces": ["team-a"], "kinds": ["PyTorchTrainingJob"], "tensorboards": False},
    {"namespaceSelector": "a=b", "kinds": ["DeepSpeedJob", "GenericJob"]},
    {"gangScheduler": "volcano", "tensorboards": True},
    {"namespaces": ["team-a"], "metricsSecure": True},
    {"kinds": ["GenericJob"], "channel": False},
)


@pytest.fixture(scope="module")
def charts() -> dict[str, list[Object]]:
    """What Helm makes of the chart, by what it was told; asked once."""
    values: list[dict[str, Any]] = [IMAGE, ALL, NOTHING]
    values += [{**IMAGE, "settings": scope} for scope in SCOPES]
    names = ["default", "all", "nothing", *(f"scope {n}" for n in range(len(SCOPES)))]
    return dict(zip(names, render(values), strict=True))


def named(objects: list[Object], kind: str, name: str) -> Object:
    (found,) = (o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name))
    return found


def reduced(obj: Object, *, and_spec: bool = False) -> Object:
    """Without what only the chart has."""
    metadata = {k: v for k, v in obj["metadata"].items() if k not in ("labels", "annotations")}
    made = {**obj, "metadata": metadata}
    if obj["kind"] == "Deployment":
        template = {k: v for k, v in obj["spec"]["template"].items() if k != "metadata"}
        made["spec"] = {**obj["spec"], "template": template}
        (container,) = template["spec"]["containers"]
        container.pop("imagePullPolicy", None)
        container.pop("image")
    return made


def test_helm_finds_nothing_wrong_with_it() -> None:
    assert lint(IMAGE) == ""
    assert lint(ALL) == ""


def test_it_makes_what_manifests_prints(charts: dict[str, list[Object]]) -> None:
    """But for the Namespace, which is Helm's, and the budget, the file of settings."""
    install = Install("any", "ops", settings={"_": ""})
    wanted = [reduced(o) for o in manifests(install) if o["kind"] not in ("Namespace", "ConfigMap")]
    made = [reduced(o) for o in charts["default"]]
    missing = [each for each in wanted if each not in made]
    assert [(o["kind"], o["metadata"]["name"]) for o in missing] == []
    others = {o["kind"] for o in made if o not in wanted}
    assert others == {"ConfigMap", "PodDisruptionBudget"}


@pytest.mark.parametrize("which", ["default", "all", "scope 1"])
def test_kubernetes_takes_it(which: str, charts: dict[str, list[Object]]) -> None:
    for obj in charts[which]:
        if obj["kind"] != "ServiceMonitor":
            kubernetes_validate.validate(obj, kubernetes_validate.latest_version(), strict=True)


def test_without_everything_the_operator_is_left(charts: dict[str, list[Object]]) -> None:
    assert sorted(obj["kind"] for obj in charts["nothing"]) == ["ConfigMap", "Deployment"]


def test_what_is_said_arrives(charts: dict[str, list[Object]]) -> None:
    objects = charts["all"]
    spec = named(objects, "Deployment", "jobs")["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert spec["replicas"] == 3
    assert container["image"] == "registry/trainyard@sha256:abc"
    assert container["env"][3:] == ALL["env"]
    assert container["volumeMounts"][-1:] == ALL["volumeMounts"]
    assert pod["volumes"][-1:] == ALL["volumes"]
    assert container["resources"]["limits"] == {"memory": "1Gi"}
    for name in ("tolerations", "affinity", "nodeSelector", "priorityClassName"):
        assert pod[name] == ALL[name]
    assert pod["imagePullSecrets"] == ALL["imagePullSecrets"]
    assert pod["serviceAccountName"] == "robot"
    labels = spec["template"]["metadata"]["labels"]
    assert labels == {"team": "platform", "app.kubernetes.io/name": "jobs"}
    assert named(objects, "NetworkPolicy", "jobs")["spec"]["ingress"][0]["from"]
    (endpoint,) = named(objects, "ServiceMonitor", "jobs")["spec"]["endpoints"]
    assert (endpoint["interval"], endpoint["scheme"]) == ("10s", "https")
    assert endpoint["tlsConfig"] == {"insecureSkipVerify": True}
    ports = named(objects, "Service", "jobs-metrics")["spec"]["ports"]
    assert endpoint["port"] in {port["name"] for port in ports}
    bound = {o["subjects"][0]["name"] for o in objects if o["kind"].endswith("RoleBinding")}
    assert bound == {"robot"}


def test_the_settings_arrive_and_new_ones_make_new_pods(
    charts: dict[str, list[Object]], tmp_path: Path
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(named(charts["all"], "ConfigMap", "jobs")["data"]["settings.yaml"])
    made = EffectiveSettings({}, {}, file)
    assert (made["sshPort"], made["leaseDuration"], made["namespaces"]) == (
        2299,
        60.0,
        ("team-a", "team-b"),
    )

    def sum_of(which: str, name: str) -> str:
        metadata = named(charts[which], "Deployment", name)["spec"]["template"]["metadata"]
        return str(metadata["annotations"]["checksum/settings"])

    assert sum_of("all", "jobs") != sum_of("default", "trainyard-operator")
    assert sum_of("scope 0", "trainyard-operator") == sum_of("default", "trainyard-operator")


@pytest.mark.parametrize("number", range(len(SCOPES)))
def test_rights_follow_the_settings(
    number: int, charts: dict[str, list[Object]], tmp_path: Path
) -> None:
    """As those of `manifests` do."""
    file = tmp_path / "settings.yaml"
    file.write_text(yaml.safe_dump(SCOPES[number]))
    effective = EffectiveSettings({}, {}, file)
    operator = replace(effective.settings.operator, has_channel=effective["channel"])
    install = Install("any", "ops", operator=operator, settings=effective.given)
    wanted = [reduced(o) for o in manifests(install) if _is_right(o)]
    assert [reduced(o) for o in charts[f"scope {number}"] if _is_right(o)] == wanted


def _is_right(obj: Object) -> bool:
    mine = obj["metadata"]["name"].startswith("trainyard-operator")
    return mine and obj["kind"].endswith(("Role", "RoleBinding"))


def test_definitions_stay_when_the_chart_goes(charts: dict[str, list[Object]]) -> None:
    for obj in charts["default"]:
        kept = (obj["metadata"].get("annotations") or {}).get("helm.sh/resource-policy") == "keep"
        assert kept is (obj["kind"] == "CustomResourceDefinition")


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"replica": 3}, "replica"),
    ({"replicas": -1}, "/replicas"),
    ({"settings": {"sshPort": 70000}}, "/settings/sshPort"),
    ({"settings": {"sshport": 22}}, "sshport"),
    ({"settings": {"namespaces": "team"}}, "/settings/namespaces"),
    ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
)


def test_values_that_cannot_be_are_refused() -> None:
    for (_, told), answer in zip(REFUSED, asked([{**IMAGE, **v} for v, _ in REFUSED]), strict=True):
        assert isinstance(answer, Refused)
        assert told in str(answer)


def test_every_value_is_used() -> None:
    text = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    assert [each.path for each in VALUES if f".Values.{each.path}" not in text] == []


def test_schedulers_that_can_be_named_have_their_rights() -> None:
    """Of those that have objects of their own."""
    text = (CHART / "templates/rights.yaml").read_text()
    for backend in (GangBackend.T9K, GangBackend.VOLCANO, GangBackend.SCHEDULER_PLUGINS):
        assert f'(list "auto" "{backend}")' in text


def test_what_auto_may_find_is_granted_whether_it_is_named_or_not() -> None:
    values = [{}, *({"gangScheduler": each} for each in ("auto", "none"))]
    charts = render([{**IMAGE, "settings": each} for each in values])
    by_default, auto, none = (named(each, "ClusterRole", "trainyard-operator") for each in charts)
    assert auto == by_default
    groups = {group for rule in auto["rules"] for group in rule["apiGroups"]}
    assert groups - {group for rule in none["rules"] for group in rule["apiGroups"]} == {
        *("scheduler.tensorstack.dev", "scheduling.volcano.sh", "scheduling.x-k8s.io"),
        *("scheduling.k8s.io", "kueue.x-k8s.io"),
    }
