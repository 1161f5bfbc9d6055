"""The pod and the Service of a TensorBoard."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from trainyard.kinds.kind_admission import admit
from trainyard.kinds.shared.job_settings import GangBackend, Settings
from trainyard.kinds.shared.viewer import Viewer
from trainyard.kinds.tensorboard.spec import TensorBoard
from trainyard.kinds.tensorboard.workload import FETCHED, describe
from trainyard.schema.kubernetes_schemas import check_part

CLAIM = {"pvc": [{"name": "mnist", "subPath": ["./log"]}]}


def board(settings: Settings | None = None, /, **spec: Any) -> Viewer:
    obj = {
        "apiVersion": "tensorstack.dev/v1beta1",
        "kind": "TensorBoard",
        "metadata": {"name": "digits", "namespace": "team", "uid": "u-1", "generation": 3},
        "spec": {"logDir": CLAIM, **spec},
    }
    admission = admit(obj)
    assert not admission.errors
    assert isinstance(admission.model, TensorBoard)
    return describe(admission.model, settings or Settings())


def container(made: Viewer) -> dict[str, Any]:
    found: dict[str, Any] = made.pod["spec"]["containers"][0]
    return found


def test_one_folder_is_shown_by_tensorboard_itself() -> None:
    made = board()
    assert container(made)["command"] == [
        "tensorboard",
        "--logdir=/claims/mnist/log",
        "--port=6006",
        "--bind_all",
    ]
    assert container(made)["volumeMounts"] == [
        {"name": "claim-0", "mountPath": "/claims/mnist", "readOnly": True}
    ]


def test_several_folders_become_links_side_by_side() -> None:
    claims = [{"name": "a", "subPath": ["x", "it's", "x/"]}, {"name": "b"}]
    command = container(board(logDir={"pvc": claims}))["command"]
    assert command[:2] == ["/bin/sh", "-c"]
    links = [shlex.split(part)[2:] for part in command[2].split(" && ")[:-1]]
    assert links == [
        ["/claims/a/x", "/logs/a-x"],
        ["/claims/a/it's", "/logs/a-it-s"],
        ["/claims/b", "/logs/b"],
    ]
    assert command[2].endswith("exec tensorboard --logdir=/logs --port=6006 --bind_all")


def test_folders_whose_labels_are_the_same_get_links_of_their_own() -> None:
    claims = [{"name": "a", "subPath": ["x/y", "x-y"]}]
    script = container(board(logDir={"pvc": claims}))["command"][2]
    assert "/logs/a-x-y && " in script
    assert "/logs/a-x-y-2 && " in script


def test_claims_are_never_mounted_by_subpath_or_writable() -> None:
    claims = [{"name": "a", "subPath": ["x", "y"]}]
    mounts = container(board(logDir={"pvc": claims}))["volumeMounts"]
    assert all("subPath" not in mount for mount in mounts)
    assert [m["mountPath"] for m in mounts if not m.get("readOnly")] == ["/logs"]


def test_the_pod_belongs_to_the_board_and_is_none_of_a_job() -> None:
    made = board()
    metadata = made.pod["metadata"]
    assert metadata["name"] == made.pod_name == "digits-tb"
    assert metadata["namespace"] == "team"
    assert metadata["labels"]["trainyard.dev/job-uid"] == "u-1"
    assert [o["kind"] for o in metadata["ownerReferences"]] == ["TensorBoard"]
    assert made.pod["spec"]["restartPolicy"] == "Always"


@pytest.mark.parametrize(
    ("settings", "kind"), [(Settings(), "ClusterIP"), (Settings.local(), "NodePort")]
)
def test_the_service_selects_the_pod(settings: Settings, kind: str) -> None:
    made = board(settings)
    service = made.service.manifest(made.service.name)
    assert service["spec"]["type"] == kind
    marks = made.pod["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= marks.items()
    assert service["metadata"]["name"] == "digits-tb"


def test_the_pod_is_one_that_kubernetes_takes() -> None:
    claims = [{"name": "a"}, {"name": "b"}]
    made = board(Settings.local(plain_processes=True), logDir={"pvc": claims}, image="tb:1")
    assert check_part({"spec": made.pod["spec"]}, "PodTemplateSpec") == []


def test_a_pod_without_a_network_of_its_own_listens_on_its_address_only() -> None:
    made = container(board(Settings.local(plain_processes=True)))
    assert made["command"][-1] == "--host=$(POD_IP)"
    assert made["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"


def test_the_image_is_the_specs_or_the_operators() -> None:
    assert container(board(image="tb:1"))["image"] == "tb:1"
    assert container(board())["image"] == Settings().boards.image


def test_on_one_machine_a_viewer_sets_nothing_aside() -> None:
    limits = {"limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}}
    assert container(board(resources=limits))["resources"] == limits
    assert container(board(Settings.local(), resources=limits))["resources"] == {
        **limits,
        "requests": {"cpu": "0", "memory": "0", "nvidia.com/gpu": "1"},
    }


@pytest.mark.parametrize(
    ("backend", "scheduler"),
    [
        (GangBackend.T9K, "t9k-scheduler"),
        (GangBackend.VOLCANO, "volcano"),
        (GangBackend.KUEUE, None),
        (GangBackend.SCHEDULER_PLUGINS, None),
        (GangBackend.NONE, None),
    ],
)
def test_the_queue_is_asked_in_the_words_of_the_scheduler(
    backend: GangBackend, scheduler: str | None
) -> None:
    made = board(Settings(gang_backend=backend), scheduler={"t9kScheduler": {"queue": "q"}})
    assert made.pod["spec"].get("schedulerName") == scheduler
    marks = made.pod["metadata"]
    values = [*marks["labels"].values(), *marks["annotations"].values()]
    has_queue = backend not in (GangBackend.NONE, GangBackend.SCHEDULER_PLUGINS)
    assert ("q" in values) is has_queue


def test_the_revision_follows_what_the_pod_is_made_of() -> None:
    first = board()
    assert board().revision == first.revision
    assert board(suspend=True).revision == first.revision
    for change in (
        {"image": "tb:1"},
        {"logDir": {"pvc": [{"name": "other"}]}},
        {"resources": {"limits": {"cpu": "1"}}},
        {"scheduler": {"t9kScheduler": {"queue": "q"}}},
    ):
        assert board(**change).revision != first.revision


def test_an_upgrade_that_changes_words_of_our_program_keeps_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s3 = {"secretRef": {"name": "keys"}, "uri": ["s3://logs/run/"]}
    first = board(logDir={"s3": s3})
    monkeypatch.setattr("trainyard.kinds.tensorboard.workload._program", lambda: "newer words")
    later = board(logDir={"s3": s3})
    assert "newer words" in later.pod["spec"]["containers"][1]["command"]
    assert later.revision == first.revision
    assert board(logDir={"s3": {**s3, "uri": ["s3://logs/other/"]}}).revision != first.revision


def test_what_cannot_be_shown_is_kept_for_the_status() -> None:
    made = board(logDir={"pvc": [{"name": "a", "subPath": [".."]}]})
    assert not made.has_logs
    assert made.unserved == ("folder '..' leaves the claim a",)


REMOTE = {
    "pvc": [{"name": "mnist", "subPath": ["log"]}],
    "s3": {"secretRef": {"name": "keys"}, "uri": ["s3://runs/one/", "s3://runs/two/"]},
    "http": {"url": ["https://example.com/events"]},
}


def test_logs_elsewhere_are_fetched_beside_by_who_has_the_credentials() -> None:
    made = board(logDir=REMOTE)
    first, *fetchers = made.pod["spec"]["containers"]
    assert "envFrom" not in first
    assert [each["name"] for each in fetchers] == list(made.fetchers) == ["fetch-0", "fetch-1"]
    assert [each.get("envFrom") for each in fetchers] == [[{"secretRef": {"name": "keys"}}], None]
    assert [each["command"][3:] for each in fetchers] == [
        ["/logs/s3-keys", "s3://runs/one/", "s3://runs/two/"],
        ["/logs/http", "https://example.com/events"],
    ]
    assert "ln -sfn /claims/mnist/log /logs/mnist-log && exec" in first["command"][2]
    assert check_part({"spec": made.pod["spec"]}, "PodTemplateSpec") == []


def test_a_claim_that_is_called_like_a_fetched_folder_keeps_its_own() -> None:
    made = board(logDir={**REMOTE, "pvc": [{"name": "http"}]})
    assert "/logs/http &&" in container(made)["command"][2]
    assert made.pod["spec"]["containers"][2]["command"][3] == "/logs/http-2"


def test_kubernetes_expands_nothing_in_the_program_that_fetches() -> None:
    text = board(logDir=REMOTE).pod["spec"]["containers"][1]["command"][2]
    assert "$(" not in text
    assert f'FETCHED = "{FETCHED}"' in text
