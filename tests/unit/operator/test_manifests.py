"""What a cluster is given to run the operator."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
from click.testing import CliRunner

from trainyard.cli.crds import command as crds_command
from trainyard.cli.manifests import command
from trainyard.kinds.shared.settings import GangBackend
from trainyard.kinds.table import KINDS
from trainyard.lifecycle.observed import observed_resources
from trainyard.operator.manifests import manifests
from trainyard.operator.planners import served_kinds
from trainyard.operator.settings import OperatorSettings

OBJECTS = manifests(image="registry/trainyard:1", namespace="training", replicas=3)


def named(kind: str) -> dict[str, Any]:
    return next(o for o in OBJECTS if o["kind"] == kind)


@pytest.mark.parametrize("obj", OBJECTS, ids=lambda o: f"{o['kind']}-{o['metadata']['name']}")
def test_every_object_passes_the_official_schema(obj: dict[str, Any]) -> None:
    kubernetes_validate.validate(obj, kubernetes_validate.latest_version(), strict=True)


def test_the_controller_may_create_all_that_it_owns() -> None:
    rules = named("ClusterRole")["rules"]
    for resource in observed_resources(GangBackend.T9K):
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
    assert printed.output.count("\nkind: ") == len(OBJECTS)
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
