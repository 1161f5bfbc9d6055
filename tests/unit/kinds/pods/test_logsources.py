"""Which logs a TensorBoardSpec names."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.kinds.tensorboard.log_sources import Folder, Remote, Sources, folder_name, sources
from trainyard.kinds.tensorboard.spec import TensorBoardSpec, inside_claim


def found(**spec: Any) -> Sources:
    return sources(TensorBoardSpec.model_validate(spec))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", ""),
        (".", ""),
        ("/", ""),
        ("./", ""),
        ("log", "log"),
        ("./log", "log"),
        ("/log/", "log"),
        ("log/./train//a", "log/train/a"),
        ("log/../other", "other"),
        ("..", None),
        ("../log", None),
        ("/../log", None),
        ("log/../../x", None),
    ],
)
def test_a_folder_is_relative_to_its_claim_and_stays_in_it(path: str, expected: str | None) -> None:
    assert inside_claim(path) == expected


def test_old_and_new_fields_name_the_same_folder_once() -> None:
    logs = {"pvc": [{"name": "mnist", "subPath": ["./log"]}]}
    assert found(logDir=logs, trainingLogFilesets=["t9k://pvc/mnist/log"]) == Sources(
        (Folder("mnist", "log"),)
    )


def test_a_claim_without_folders_is_shown_whole() -> None:
    assert found(logDir={"pvc": [{"name": "mnist"}]}).folders == (Folder("mnist", ""),)
    assert found(trainingLogFilesets=["t9k://pvc/mnist"]).folders == (Folder("mnist", ""),)


def test_all_sources_are_combined() -> None:
    logs = {
        "pvc": [{"name": "a", "subPath": ["x", "y"]}, {"name": "b"}],
        "s3": {"secretRef": {"name": "keys"}, "uri": ["s3://runs/one/"]},
        "http": {"url": ["https://example.com/events.out.tfevents.1"]},
    }
    filesets = ["t9k://minio/keys/runs/two", "t9k://minio/other/old"]
    combined = found(logDir=logs, trainingLogFilesets=filesets)
    assert combined.folders == (Folder("a", "x"), Folder("a", "y"), Folder("b", ""))
    assert combined.remotes == (
        Remote("keys", ("s3://runs/two", "s3://runs/one/")),
        Remote("other", ("s3://old",)),
        Remote("", ("https://example.com/events.out.tfevents.1",)),
    )
    assert combined.unserved == ()


def test_what_cannot_be_shown_is_told_and_the_rest_is_shown() -> None:
    logs = {
        "pvc": [{"name": "a", "subPath": ["../b", "log"]}],
        "s3": {"secretRef": {"name": "keys"}, "uri": ["runs/one/"]},
        "http": {"url": ["file:///etc/passwd"]},
    }
    left = found(logDir=logs, trainingLogFilesets=["nfs://server/log"])
    assert left.folders == (Folder("a", "log"),)
    assert left.remotes == ()
    unserved = "\n".join(left.unserved)
    for word in ("'../b' leaves the claim a", "'runs/one/'", "'file:///etc/passwd'", "nfs://"):
        assert word in unserved


def test_nothing_to_show_is_seen() -> None:
    assert not found().any
    assert not found(logDir={"pvc": [{"name": "a", "subPath": [".."]}]}).any


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (("mnist", "train/log"), "mnist-train-log"),
        (("mnist", ""), "mnist"),
        (("a b", "'; rm -rf /"), "a-b--rm--rf"),
        (("", ""), "logs"),
    ],
)
def test_labels_are_file_names(parts: tuple[str, str], expected: str) -> None:
    assert folder_name(*parts) == expected
