"""The settings of a running operator, as its pod has them."""

from __future__ import annotations

from typing import Any

from trainyard.operator.doctor.settings_checks import config_maps, settings_of_pod
from trainyard.operator.install.install_manifests import Install, deployment

MAPS = {
    "settings": {"settings.yaml": "sshPort: 2299\nworkers: 3\n"},
    "more": {"TRAINYARD_OPERATOR_WORKERS": "4", "level": "debug"},
}


def found_in(*words: str, **rest: Any) -> dict[str, Any]:
    volumes = [{"name": "s", "configMap": {"name": "settings"}}]
    mounts = [{"name": "s", "mountPath": "/etc/trainyard"}]
    mine = {"name": "operator", "args": [*words], "volumeMounts": mounts, **rest}
    pod = {
        "metadata": {"namespace": "ops"},
        "spec": {"containers": [{"name": "proxy", "args": ["--port=1"]}, mine], "volumes": volumes},
    }
    return settings_of_pod(pod, {name: MAPS[name] for name in config_maps(pod)}).given


def test_flags_go_before_variables_and_these_before_the_file() -> None:
    found = found_in(
        *("trainyard", "operator", "--config=/etc/trainyard/settings.yaml", "--kubeconfig", "x"),
        *("--no-leader-elect", "-n", "a", "--namespace=b", "--job-metrics", "--gang-scheduler"),
        "kueue",
        env=[
            {"name": "TRAINYARD_OPERATOR_SSH_PORT", "value": "2300"},
            {
                "name": "TRAINYARD_OPERATOR_LOG_LEVEL",
                "valueFrom": {"configMapKeyRef": {"name": "more", "key": "level"}},
            },
            {
                "name": "TRAINYARD_OPERATOR_LEASE_NAMESPACE",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
            },
            {"name": "OTHER", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ],
        envFrom=[{"configMapRef": {"name": "more"}}],
    )
    assert found == {
        "namespaces": ["a", "b"],
        "gangScheduler": "kueue",
        "sshPort": 2300,
        "workers": 4,
        "leaderElect": False,
        "leaseNamespace": "ops",
        "logLevel": "debug",
        "jobMetrics": True,
    }


def test_the_file_may_be_named_by_a_variable_and_be_in_the_image() -> None:
    name = "TRAINYARD_OPERATOR_CONFIG"
    path = "/etc/trainyard/settings.yaml"
    found = found_in("operator", env=[{"name": name, "value": path}])
    assert found == {"sshPort": 2299, "workers": 3}
    assert found_in("operator", "--config=/opt/settings.yaml") == {}


def test_without_the_word_operator_all_arguments_are_its_own() -> None:
    """An image whose entry point is the operator."""
    pod = {
        "metadata": {"namespace": "ops"},
        "spec": {"containers": [{"name": "x", "args": ["--ssh-port=2301"]}]},
    }
    assert settings_of_pod(pod, {}).given == {"sshPort": 2301}


def test_an_operator_as_it_is_shipped_is_read_as_it_reads_itself() -> None:
    """Its variables refer to each other and to its pod, and it may be that this has no address."""
    template = deployment(Install("trainyard", "ops"))["spec"]["template"]
    pod = {**template, "metadata": {"name": "operator-0", "namespace": "ops"}}
    address = "trainyard-operator-reports.ops.svc:7443"
    here = settings_of_pod({**pod, "status": {"podIP": "10.0.0.7"}}, {}).settings
    assert here.operator.lifecycle.channel_address == address
    assert here.channel.endpoint == "10.0.0.7"
    nowhere = settings_of_pod(pod, {}).settings
    assert nowhere.operator.lifecycle.channel_address == address
    assert nowhere.channel.endpoint == ""


def test_references_are_put_in_as_kubernetes_does() -> None:
    env = [
        {"name": "PLACE", "value": "a"},
        {"name": "TRAINYARD_OPERATOR_TENSORBOARD_IMAGE", "value": "$(PLACE)-$$(PLACE)-$(LATER)"},
        {"name": "LATER", "value": "b"},
    ]
    found = settings_of_pod(
        {
            "metadata": {"namespace": "ops"},
            "spec": {"containers": [{"name": "x", "args": ["-n=$(LATER)"], "env": env}]},
        },
        {},
    )
    assert found.given == {"namespaces": ["b"], "tensorboardImage": "a-$(PLACE)-$(LATER)"}
