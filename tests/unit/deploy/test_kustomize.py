"""The kustomize bases, built by kubectl's own kustomize."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.tools import kubectl_path, oldest_and_newest_kubectl
from trainyard.operator.install.install_manifests import Install, manifests
from trainyard.operator.install.rbac_rules import conditional_rules

BASES = Path(__file__).parents[3] / "deploy/kustomize"
Object = dict[str, Any]


def built(folder: Path) -> list[Object]:
    """What `kubectl kustomize` makes of a folder."""
    program = kubectl_path(oldest_and_newest_kubectl()[-1])
    done = subprocess.run(
        [program, "kustomize", str(folder)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def overlay(folder: Path, base: str, **more: Any) -> Path:
    """A kustomization of a user's own, on one of ours."""
    # As kustomize reads it: by real paths.
    place = os.path.relpath((BASES / base).resolve(), folder.resolve())
    text = yaml.safe_dump({"resources": [place], **more})
    (folder / "kustomization.yaml").write_text(text)
    return folder


def key(obj: Object) -> tuple[str, str]:
    return obj["kind"], obj["metadata"]["name"]


def test_the_whole_is_what_manifests_prints() -> None:
    made = {key(obj): obj for obj in built(BASES / "cluster")}
    wanted = {key(obj): obj for obj in manifests(Install("trainyard", "trainyard"))}
    assert set(made) - set(wanted) == {("PodDisruptionBudget", "trainyard-operator")}
    for name, obj in wanted.items():
        if name[0] != "ValidatingAdmissionPolicy":  # texts are folded otherwise
            assert made[name] == obj
    for obj in made.values():
        kubernetes_validate.validate(obj, kubernetes_validate.latest_version(), strict=True)


def test_that_of_a_namespace_has_no_right_outside_of_it(tmp_path: Path) -> None:
    objects = built(overlay(tmp_path, "namespaced", namespace="team"))
    assert {obj["metadata"]["namespace"] for obj in objects} == {"team"}
    kinds = {obj["kind"] for obj in objects}
    assert not kinds & {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}
    by_name = {key(obj): obj for obj in objects}
    role = by_name["Role", "trainyard-operator"]
    assert role["rules"] == [each.rule for each in conditional_rules() if not each.cluster]
    for name in ("trainyard-operator", "trainyard-operator-lease"):
        subject = by_name["RoleBinding", name]["subjects"][0]
        assert (subject["name"], subject["namespace"]) == ("trainyard-operator", "team")
    pod = by_name["Deployment", "trainyard-operator"]["spec"]["template"]["spec"]
    own = {"fieldRef": {"fieldPath": "metadata.namespace"}}
    names = {each["name"] for each in pod["containers"][0]["env"] if each.get("valueFrom") == own}
    assert names == {"TRAINYARD_OPERATOR_NAMESPACES", "TRAINYARD_OPERATOR_LEASE_NAMESPACE"}


@pytest.mark.parametrize("base", ["cluster", "namespaced"])
def test_image_and_namespace_are_changed_as_everywhere(base: str, tmp_path: Path) -> None:
    images = [{"name": "trainyard", "newName": "registry/trainyard", "newTag": "1"}]
    objects = built(overlay(tmp_path, base, namespace="ops", images=images))
    deployment = next(obj for obj in objects if obj["kind"] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == (
        "registry/trainyard:1"
    )
    subjects = [obj["subjects"][0] for obj in objects if obj["kind"].endswith("RoleBinding")]
    assert {subject["namespace"] for subject in subjects} == {"ops"}


@pytest.mark.parametrize("base", ["cluster", "namespaced"])
def test_metrics_are_made_secure_by_a_component(base: str, tmp_path: Path) -> None:
    component = os.path.relpath((BASES / "secure-metrics").resolve(), tmp_path.resolve())
    objects = built(overlay(tmp_path, base, namespace="ops", components=[component]))
    by_name = {key(obj): obj for obj in objects}
    binding = by_name["ClusterRoleBinding", "trainyard-operator-reviews-trainyard"]
    assert binding["subjects"][0]["namespace"] == "ops"
    pod = by_name["Deployment", "trainyard-operator"]["spec"]["template"]["spec"]
    env = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    assert env["TRAINYARD_OPERATOR_METRICS_SECURE"] == "true"
