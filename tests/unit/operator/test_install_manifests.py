"""What a cluster is given to run the operator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from trainyard.cli.commands.crds import command as crds_command
from trainyard.cli.commands.manifests import command
from trainyard.kinds.kind_registry import KINDS
from trainyard.kinds.shared.job_settings import GangBackend, Settings
from trainyard.kube.resources import CONFIG_MAPS, SECRETS
from trainyard.lifecycle.observed import observed_resources
from trainyard.operator.config.operator_settings import OperatorSettings
from trainyard.operator.config.settings_loader import EffectiveSettings
from trainyard.operator.install.install_manifests import (
    Install,
    disruption_budget,
    manifests,
    network_policy,
    role_objects,
)
from trainyard.operator.reconcile.planner import served_kinds, watched_resources

INSTALL = Install("registry/trainyard:1", "training", 3, settings={"sshPort": 2299})
KUEUE = (["workloads"], ["workloads/status"])
OBJECTS = [
    *manifests(INSTALL),
    disruption_budget(INSTALL),
    network_policy(INSTALL, [{"namespaceSelector": {}}]),
]


def named(kind: str, name: str = "trainyard-operator") -> dict[str, Any]:
    return next(o for o in OBJECTS if (o["kind"], o["metadata"]["name"]) == (kind, name))


def rights_of(**scope: Any) -> list[dict[str, Any]]:
    """The roles of an operator that looks after this."""
    install = replace(INSTALL, operator=OperatorSettings(**scope))
    return [obj for obj in role_objects(install) if obj["kind"].endswith("Role")]


def may(roles: list[dict[str, Any]]) -> set[str]:
    """What the roles give any right to."""
    return {name for role in roles for rule in role["rules"] for name in rule["resources"]}


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda o: f"{o['kind']}-{o['metadata']['name']}")
def test_every_object_passes_the_official_schema(obj: dict[str, Any]) -> None:
    kubernetes_validate.validate(obj, kubernetes_validate.latest_version(), strict=True)


def test_the_controller_may_create_all_that_it_owns() -> None:
    rules = named("ClusterRole")["rules"]
    for resource in observed_resources(Settings()):
        verbs = {
            verb
            for rule in rules
            if resource.group in rule["apiGroups"] and resource.plural in rule["resources"]
            for verb in rule["verbs"]
        }
        assert {"create", "delete", "list", "watch"} <= verbs, resource


def test_the_deployment_runs_the_image_where_it_was_told_to() -> None:
    deployment = named("Deployment")
    assert deployment["metadata"]["namespace"] == "training"
    assert deployment["spec"]["replicas"] == 3
    assert (
        deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "registry/trainyard:1"
    )
    assert named("ClusterRoleBinding")["subjects"][0]["namespace"] == "training"


def test_the_command_prints_all_of_it() -> None:
    printed = CliRunner().invoke(command, ["--image", "i"], catch_exceptions=False)
    assert printed.exit_code == 0
    assert printed.output.count("\nkind: ") == len(manifests(Install("i", "n")))
    assert "&id" not in printed.output  # not every reader of manifests knows anchors


@pytest.mark.parametrize(
    ("version", "has_policies", "has_rules"),
    [("1.31", True, True), ("v1.29.4+k3s1", False, True), ("1.20", False, False)],
)
def test_an_old_server_gets_nothing_it_does_not_know(
    version: str, has_policies: bool, has_rules: bool
) -> None:
    options = ["--image", "i", "--kubernetes-version", version]
    printed = CliRunner().invoke(command, options, catch_exceptions=False).output
    assert ("ValidatingAdmissionPolicy" in printed) is has_policies
    assert ("x-kubernetes-validations" in printed) is has_rules
    definitions = CliRunner().invoke(crds_command, options[2:], catch_exceptions=False).output
    assert definitions.count("\nkind: ") == len(KINDS)
    assert ("x-kubernetes-validations" in definitions) is has_rules


def test_what_is_no_version_is_refused() -> None:
    printed = CliRunner().invoke(crds_command, ["--kubernetes-version", "new"])
    assert printed.exit_code == 2
    assert "write it like 1.27" in printed.output


def test_the_controller_may_tell_the_state_of_all_that_it_looks_after() -> None:
    granted = {
        (group, resource)
        for rule in named("ClusterRole")["rules"]
        if "update" in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    for kind in served_kinds(OperatorSettings()):
        assert {
            (kind.group, f"{kind.plural}/{part}") for part in ("status", "finalizers")
        } <= granted


def test_rights_are_where_they_are_needed_and_no_more() -> None:
    everywhere = rights_of()
    assert [role["kind"] for role in everywhere] == ["ClusterRole", "Role"]
    assert "leases" not in may(everywhere[:1])
    assert {"nodes", "secrets"} < may(everywhere)
    assert "namespaces" not in may(everywhere)
    assert "namespaces" in may(rights_of(namespace_selector="team=a"))
    apart = rights_of(namespaces=("team-a", "team-b"))
    places = [(role["kind"], role["metadata"]["namespace"]) for role in apart]
    assert places == [("Role", "team-a"), ("Role", "team-b"), ("Role", "training")]
    assert not may(apart) & {"nodes", "namespaces"}


def test_secrets_are_for_kinds_that_launch_over_ssh_and_for_reports_only() -> None:
    silent = {"kinds": ("PyTorchTrainingJob", "GenericJob"), "has_channel": False}
    plain = rights_of(**silent)
    assert not may(plain) & {"secrets", "configmaps", "deepspeedjobs", "colossalaijobs/status"}
    for kind in ("DeepSpeedJob", "ColossalAIJob"):
        assert {"secrets", "configmaps"} < may(rights_of(**{**silent, "kinds": (kind,)}))
    assert {"secrets", "configmaps"} < may(rights_of(**{**silent, "has_channel": True}))


def test_what_is_written_for_pods_that_report_is_watched() -> None:
    """The evidence of a hang is a ConfigMap: an operator for PyTorch alone did not know of any."""
    kinds = ("PyTorchTrainingJob",)
    reporting = Settings(channel_address="reports:7443")
    watched = watched_resources(OperatorSettings(kinds=kinds, lifecycle=reporting))
    assert {SECRETS, CONFIG_MAPS} < set(watched)
    assert not {SECRETS, CONFIG_MAPS} & set(watched_resources(OperatorSettings(kinds=kinds)))
    assert "tensorboards/status" not in may(rights_of(serves_tensorboards=False))


def test_only_pods_are_changed_and_nothing_has_every_right() -> None:
    for role in rights_of():
        for rule in role["rules"]:
            assert "*" not in (*rule["verbs"], *rule["resources"], *rule["apiGroups"])
            if "patch" in rule["verbs"]:
                assert rule["resources"] in (["pods"], ["events"], *KUEUE)


def test_settings_are_given_in_a_file_that_the_operator_takes(tmp_path: Path) -> None:
    text = named("ConfigMap")["data"]["settings.yaml"]
    (tmp_path / "settings.yaml").write_text(text)
    assert EffectiveSettings({}, {}, tmp_path / "settings.yaml")["sshPort"] == 2299
    spec = named("Deployment")["spec"]["template"]["spec"]
    container = spec["containers"][0]
    (file,) = (w.partition("=")[2] for w in container["command"] if w.startswith("--config="))
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert file == f"{mounts['settings']}/settings.yaml"
    assert {volume["name"] for volume in spec["volumes"]} == set(mounts)
    # A Service of this name would make a variable TRAINYARD_OPERATOR_PORT in each of its pods.
    assert spec["enableServiceLinks"] is False


def test_rights_follow_the_settings_that_the_command_is_given(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    config = "namespaces: [team]\nkinds: [GenericJob]\ngangScheduler: none\n"
    file.write_text(f"{config}channel: false\n")
    options = ["--image", "i", "--config", str(file)]
    printed = CliRunner().invoke(command, options, catch_exceptions=False).output
    objects = [obj for obj in yaml.safe_load_all(printed) if obj["kind"].endswith("Role")]
    mine = [obj for obj in objects if "operator" in obj["metadata"]["name"]]
    assert [obj["metadata"]["namespace"] for obj in mine] == ["team", "trainyard"]
    wanted = {"pods", "services", "events", "genericjobs", "tensorboards", "leases"}
    assert {name.partition("/")[0] for name in may(mine)} == wanted
    file.write_text(config)
    printed = CliRunner().invoke(command, options, catch_exceptions=False).output
    objects = [obj for obj in yaml.safe_load_all(printed) if obj["kind"].endswith("Role")]
    mine = [obj for obj in objects if "operator" in obj["metadata"]["name"]]
    assert {name.partition("/")[0] for name in may(mine)} == wanted | {
        "configmaps",
        "endpoints",
        "secrets",
    }
    file.write_text("workers: 0")
    refused = CliRunner().invoke(command, options)
    assert refused.exit_code == 2
    assert "setting workers, from file" in refused.output


def roles(install: Install) -> list[dict[str, Any]]:
    """Without their bindings."""
    return [each for each in role_objects(install) if "rules" in each]


def test_what_auto_may_find_is_granted_whether_it_is_named_or_not() -> None:
    by_default, auto, none = (
        may(
            roles(
                Install(
                    "i", "ops", settings=settings, operator=OperatorSettings(lifecycle=lifecycle)
                )
            )
        )
        for settings, lifecycle in (
            ({}, Settings()),
            ({"gangScheduler": "auto"}, Settings(gang_backend=GangBackend.AUTO)),
            ({"gangScheduler": "none"}, Settings(gang_backend=GangBackend.NONE)),
        )
    )
    assert auto == by_default
    assert {*auto} - {*none} >= {"podgroups", "workloads", "workloads/status", "resourceflavors"}


def test_people_get_what_their_roles_say() -> None:
    given = {
        role: named("ClusterRole", f"trainyard-{role}")["rules"]
        for role in ("view", "edit", "admin")
    }
    assert {verb for rule in given["view"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    used = {kind.plural for kind in KINDS.values()}
    assert {name for rule in given["view"] for name in rule["resources"]} == used
    changed = {name for rule in given["edit"] for name in rule["resources"]}
    assert changed == {
        *(kind.plural for kind in KINDS.values() if kind.is_job or kind.is_viewer),
        *(f"{kind.plural}/scale" for kind in KINDS.values() if kind.elastic),
    }
    for role, rules in given.items():
        label = f"rbac.authorization.k8s.io/aggregate-to-{role}"
        assert named("ClusterRole", f"trainyard-{role}")["metadata"]["labels"] == {label: "true"}
        assert not any("/status" in name for rule in rules for name in rule["resources"])
