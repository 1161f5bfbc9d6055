"""Names and paths in a pod that would lead elsewhere, refused in jobs and in pods."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.embedded.node.volumes import host_folders
from trainyard.embedded.resources.served import pods_resource
from trainyard.kinds.shared.pods.pod_template_rules import check_template

NUL = "\0"


def pod(
    mount: dict[str, Any] | None = None,
    volume: dict[str, Any] | None = None,
    container: dict[str, Any] | None = None,
) -> dict[str, Any]:
    main = {"name": "main", "image": "i", "command": ["true"], **(container or {})}
    volumes = [{"name": "v", **({"emptyDir": {}} if volume is None else volume)}]
    main["volumeMounts"] = [{"name": "v", "mountPath": "/m", **(mount or {})}]
    return {"containers": [main], "volumes": volumes}


def items(path: str, **source: Any) -> dict[str, Any]:
    return {**source, "items": [{"key": "k", "path": path}]}


CASES = [
    (pod({"subPath": "../x"}), "containers[0].volumeMounts[0].subPath: must not contain '..'"),
    (pod({"subPath": "/x"}), "containers[0].volumeMounts[0].subPath: must be a relative path"),
    (pod({"subPathExpr": "a/../../x"}), "volumeMounts[0].subPathExpr: must not contain '..'"),
    (pod({"subPath": "a", "subPathExpr": "b"}), "subPathExpr and subPath are mutually exclusive"),
    (pod({"mountPath": "//./"}), "volumeMounts[0].mountPath: is the root of the pod"),
    (pod({"mountPath": f"/a{NUL}b"}), "mountPath: must not hold a null character"),
    (pod({"name": "../v"}), "volumeMounts[0].name: there is no volume named"),
    (pod(volume={"name": "../../v"}), "volumes[0].name: '../../v' is no volume name"),
    (pod(container={"name": "../../c"}), "containers[0].name: '../../c' is no container name"),
    (pod(container={"workingDir": NUL}), "containers[0].workingDir: must not hold a null"),
    (
        pod(volume={"persistentVolumeClaim": {"claimName": "../../../etc"}}),
        "volumes[0].persistentVolumeClaim.claimName: '../../../etc' is no claim's name",
    ),
    (
        pod(volume={"persistentVolumeClaim": {"claimName": ".."}}),
        "volumes[0].persistentVolumeClaim.claimName: '..' is no claim's name",
    ),
    (
        pod(volume={"configMap": items("../../x", name="c")}),
        "volumes[0].configMap.items[0].path: must not contain '..'",
    ),
    (
        pod(volume={"secret": items("/x", secretName="s")}),
        "volumes[0].secret.items[0].path: must be a relative path",
    ),
    (
        pod(volume={"projected": {"sources": [{"secret": items("a/../b", name="s")}]}}),
        "volumes[0].projected.sources[0].secret.items[0].path: must not contain '..'",
    ),
    (
        pod(volume={"configMap": items("..data", name="c")}),
        "volumes[0].configMap.items[0].path: must not start with '..'",
    ),
    (
        pod(volume={"hostPath": {"path": "/a/../etc"}}),
        "volumes[0].hostPath.path: must not contain '..'",
    ),
    (pod(volume={"hostPath": {"path": "a"}}), "volumes[0].hostPath.path: must be an absolute path"),
    (
        pod(volume={"hostPath": {"path": "/a", "type": "Folder"}}),
        "volumes[0].hostPath.type: must be one of DirectoryOrCreate",
    ),
]
IDS = [wanted for _, wanted in CASES]


@pytest.mark.parametrize(("spec", "wanted"), CASES, ids=IDS)
def test_a_template_with_such_a_path_is_refused(spec: dict[str, Any], wanted: str) -> None:
    texts = [problem.detail for problem in check_template({"spec": spec}, ("template",))]
    assert any(wanted in text for text in texts), texts
    assert all(text.startswith("template.spec.") for text in texts)


@pytest.mark.parametrize(("spec", "wanted"), CASES, ids=IDS)
def test_a_pod_with_such_a_path_is_refused(spec: dict[str, Any], wanted: str) -> None:
    texts = [
        problem.detail
        for problem in pods_resource.SERVED.rules({"metadata": {}, "spec": spec}, None)
    ]
    assert any(wanted in text for text in texts), texts


@pytest.mark.parametrize(
    "spec",
    [
        pod({"subPath": "a/b..c/..d"}),
        pod({"subPathExpr": "$(POD_NAME)/logs"}),
        pod({"mountPath": "relative/path"}),
        pod({"mountPath": "/a/../b"}),
        pod({"mountPath": "/a:ro"}),
        pod(volume={"configMap": items("a/b.txt", name="c")}),
        pod(volume={"persistentVolumeClaim": {"claimName": "data.set-1"}}),
        pod(volume={"hostPath": {"path": "/data", "type": ""}}),
    ],
)
def test_what_kubernetes_takes_is_taken(spec: dict[str, Any]) -> None:
    assert check_template({"spec": spec}, ()) == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\0b"])
def test_no_such_name_becomes_part_of_a_path(name: str) -> None:
    """Also of an object that was stored before names were checked."""
    with pytest.raises(host_folders.PodRefused):
        host_folders.path_component(name)
    assert host_folders.path_component("..data") == "..data"
