"""``convert`` rewrites old spellings and nothing else."""

from __future__ import annotations

import pytest
import yaml

from tests.unit.kinds.test_warned import WARNED
from trainyard.conversion.legacy_conversion import convert
from trainyard.manifest.reader import read
from trainyard.schema.errors import InvalidManifest

OLD = """\
# An old job
apiVersion: batch.tensorstack.dev/v1beta1
kind: ColossalAIJob
metadata:
  name: cai  # its name
spec:
  runMode:
    pause:
      # paused for now
      enable: false  # really
  worker:
    replicas: 2  # two
    # run this
    command: ["train.py", '--a']
    template:
      spec:
        containers:
        - name: worker  # must be so
          image: "img:1"
---
# A job that needs no change
apiVersion: batch.tensorstack.dev/v1beta1
kind: GenericJob
metadata: {name: gen}
spec:
  replicaSpecs: [{type: a, template: {spec: {containers: [{name: a, image: i}]}}}]
"""


def test_comments_quotes_and_order_are_kept() -> None:
    text = convert(OLD, "old.yaml").text
    for kept in (
        "# An old job",
        "# its name",
        "# paused for now",
        "enabled: false # really",
        "replicas: 2  # two",
        "# run this",
        """script: ["train.py", '--a']""",
        "- name: worker  # must be so",
        'image: "img:1"',
        "# A job that needs no change",
        "metadata: {name: gen}",
        "[{type: a, template: {spec: {containers: [{name: a, image: i}]}}}]",
    ):
        assert kept in text, text


def test_the_result_means_the_same_and_warns_no_more() -> None:
    before, after = read(OLD), read(convert(OLD).text)
    assert before.warnings
    assert after.problems == ()
    assert [d.raw for d in after.documents] == [d.raw for d in before.documents]
    assert convert(convert(OLD).text).changes == ()


@pytest.mark.parametrize("name", WARNED)
def test_every_old_spelling_converts_to_the_same_job(name: str) -> None:
    text = yaml.safe_dump(WARNED[name][0], sort_keys=False)
    converted = convert(text)
    assert read(converted.text).jobs == read(text).jobs
    left = [p.message for p in read(converted.text).warnings]
    assert not [message for message in left if "old layout" in message or "write '" in message]


def test_a_text_without_old_spellings_is_returned_as_it_is() -> None:
    text = OLD.split("---\n")[1]
    assert convert(text).text == text


def test_contradictions_and_broken_texts_are_refused() -> None:
    both = "enable: false\n      enabled: true"
    with pytest.raises(InvalidManifest, match="contradicts"):
        convert(OLD.replace("enable: false", both))
    with pytest.raises(InvalidManifest, match=r"f.yaml:2:1"):
        convert("a: [", "f.yaml")


RAY_JOB = "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: js}\n"
OURS = OLD.split("---\n")[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RAY_JOB, "RayJob is no kind that can be converted; old spellings of PyTorchTrainingJob, "),
        (RAY_JOB, "f.yaml:2:1: error: RayJob default/js: kind: RayJob"),
        (RAY_JOB, "a Kubeflow PyTorchJob, a Kubeflow MPIJob"),
        ("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n", "Job is no kind that can be"),
        ("apiVersion: v1\nkind: List\nitems: [{kind: RayJob}]\n", "f.yaml:3:10: error: RayJob"),
        ("kind: RayJobList\nitems: []\n", "RayJobList is no kind"),
        (f"{RAY_JOB}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\n", "RayJob"),
        ("kind: PyTorchTrainingjob\n", "did you mean 'PyTorchTrainingJob'?"),
        ("metadata: {name: a}\n", "kind: is required"),
        ("", "is empty"),
        ("# no more than this\n", "holds no object"),
        ("just words\n", "an object must be a mapping"),
    ],
)
def test_what_cannot_be_converted_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidManifest) as refused:
        convert(text, "f.yaml")
    assert said in str(refused.value)


@pytest.mark.parametrize("text", [f"{OURS}---\n{RAY_JOB}", f"{RAY_JOB}---\n{convert(OURS).text}"])
def test_what_stands_beside_ours_and_is_not_known_is_left_as_it_is_and_told(text: str) -> None:
    converted = convert(text, "f.yaml")
    assert RAY_JOB.partition("metadata")[0] in converted.text
    (told,) = (p for p in converted.changes if "RayJob" in p.object)
    assert str(told).startswith("f.yaml:")
    assert ": warning: RayJob default/js: kind: RayJob is no kind that can be conv" in str(told)


def test_core_kinds_alone_need_no_change() -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
    assert convert(text).text == text
    assert convert(text).changes == ()


@pytest.mark.parametrize(
    ("field", "position", "fix"),
    [
        ("name: \tgen", "old.yaml:4:9", "write spaces for tabs"),
        ("labels: {day: 2026-02-30}", "old.yaml", "quote the date"),
    ],
)
def test_what_kubectl_takes_and_the_rewriter_does_not_is_one_clear_error(
    field: str, position: str, fix: str
) -> None:
    text = f"apiVersion: batch.tensorstack.dev/v1beta1\nkind: GenericJob\nmetadata:\n  {field}\n"
    assert not any("YAML" in problem.message for problem in read(text).problems)
    with pytest.raises(InvalidManifest) as raised:
        convert(text, "old.yaml")
    assert str(raised.value).startswith(f"{position}: error: cannot be rewritten with its comments")
    assert str(raised.value).endswith(f"; {fix}")
