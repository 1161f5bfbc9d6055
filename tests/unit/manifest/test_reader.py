"""Problems are found where they are in the text."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.unit.kinds import manifests as m

from trainyard.manifest.reader import read, read_file
from trainyard.schema.errors import InvalidManifest, TrainyardError

MANIFEST = """\
apiVersion: batch.tensorstack.dev/v1beta1
kind: PyTorchTrainingJob
metadata:
  name: mnist
spec:
  replicaSpecs:
  - type: worker
    template:
      # the pod
      spec:
        containers:
        - name: pytorch
          image: a
          commands: ["a"]
          args: ["train.py"]
"""


def test_the_line_for_users_names_file_place_object_path_and_fix() -> None:
    (problem,) = read(MANIFEST, "mnist.yaml").problems
    assert str(problem) == (
        "mnist.yaml:14:11: error: PyTorchTrainingJob default/mnist: "
        "spec.replicaSpecs[0].template.spec.containers[0].commands: "
        "unknown field; did you mean 'command'?"
    )


def test_the_second_document_and_list_items_have_their_own_lines() -> None:
    other = MANIFEST.replace("name: mnist", "name: other")
    body = "\n".join(f"  {line}" for line in other.splitlines())
    text = f"{MANIFEST}---\napiVersion: v1\nkind: List\nitems:\n-{body[1:]}\n"
    lines = [problem.line for problem in read(text).problems]
    assert lines == [14, 33]


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("a: [1, 2\nb: 3\n", 2, 2, "not valid YAML"),
        ("kind: a\n\tb: 3\n", 2, 1, "not valid YAML"),
        ("a: 1\nb: 2\na: 3\n", 3, 1, "duplicate key 'a'"),
        ("a: *nobody\n", 1, 4, "undefined alias"),
        ("a: .inf\n", 1, 4, "does not fit"),
        ("a: 99999999999999999999\n", 1, 4, "does not fit"),
        ("a: !!binary aGk=\n", 1, 4, "tag"),
        ("? [a, b]\n: c\n", 1, 3, "a key must be"),
        ("a: \x07\n", 1, 4, "control characters"),
        ("- a\n- b\n", 1, 1, "must be a mapping"),
        ("just text\n", 1, 1, "must be a mapping, not the string"),
        ("apiVersion: v1\nkind: List\n", 1, 1, "items: is required"),
        ("apiVersion: v1\nkind: List\nitems: 3\n", 3, 1, "must be a list"),
        ("apiVersion: v1\nkind: List\nitems: [3]\n", 3, 9, "must be a mapping"),
        ("kind: Pod\napiVersion: v1\n", 1, 1, "unknown kind 'Pod'"),
    ],
)
def test_broken_texts_have_a_line_and_a_column(
    text: str, line: int, column: int, message: str
) -> None:
    found = [(p.line, p.column) for p in read(text, "f.yaml").errors if message in p.detail]
    assert (line, column) in found, [str(p) for p in read(text, "f.yaml").problems]


def test_two_jobs_of_one_name_are_refused_in_one_file() -> None:
    same, other = yaml.safe_dump(m.pytorch()), yaml.safe_dump(m.generic())
    text = f"{same}---\n{other}---\n{same}"
    (problem,) = read(text).errors
    assert problem.where == "metadata.name"
    assert problem.message == "is the name of the job at line 1 too"
    assert problem.line > len(f"{same}{other}".splitlines())
    elsewhere = yaml.safe_dump({**m.pytorch(), "metadata": {"name": "mnist", "namespace": "x"}})
    generated = yaml.safe_dump({**m.pytorch(), "metadata": {"generateName": "mnist-"}})
    assert not read(f"{same}---\n{elsewhere}---\n{generated}---\n{generated}").errors


def test_a_tab_as_indentation_is_called_by_its_name() -> None:
    (problem,) = read("kind: a\n\tb: 3\n").errors
    assert problem.message.endswith("a tab cannot indent; write spaces")
    (other,) = read("kind:\ta\nb:\t@\n").errors
    assert "tab" not in other.message


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: 1\nb:\n  c: 1\n d:\n  e: 2\n", (4, 2), "no key of the mapping that begins in line 1:"),
        ("# \n\na: 'x'y\nb: 1\n", (3, 7), "begins in line 3: check the indentation and the quotes"),
        ("a:\n  - b: 1\n   c: 2\n", (3, 4), "no item of the list that begins in line 2"),
        ("a: b: c\n", (1, 5), "quote a value that holds ': '"),
        ("a: 1\nb: [1, 2\nc: 3\n", (3, 2), "the list that opens in line 2 lacks a comma or its ]"),
        ("a: {b: 1\nc: 3\n", (2, 2), "the mapping that opens in line 1 lacks a comma or its }"),
        ('a: 1\nb: "x\nc: 1\n', (4, 1), "the quote that opens in line 2 is not closed"),
    ],
)
def test_mistakes_of_syntax_are_told_in_words_that_help(
    text: str, place: tuple[int, int], words: str
) -> None:
    (problem,) = read(text).errors
    assert words in problem.message
    assert (problem.line, problem.column) == place


@pytest.mark.parametrize("filler", ["", "# filler\n" * 3000], ids=["short", "long"])
def test_a_broken_document_does_not_hide_the_ones_beside_it(filler: str) -> None:
    faulty = yaml.safe_dump(m.pytorch(bogus=1))
    text = f"{faulty}{filler}---\nx: [1\n---\n{faulty}---\ny: @\n---\n{faulty}"
    result = read(text, "f.yaml")
    broken = [p for p in result.errors if p.message.startswith("not valid YAML")]
    unknown = [p for p in result.errors if p.message == "unknown field"]
    assert (len(result.documents), len(broken), len(unknown)) == (3, 2, 3)
    lines = text.splitlines()
    assert [lines[p.line - 1].strip() for p in unknown] == ["bogus: 1"] * 3
    assert "@" in lines[broken[1].line - 1]


def test_a_file_of_nothing_but_broken_documents_is_given_up_soon() -> None:
    assert len(read("--- [\n" * 50_000).problems) <= 20


@pytest.mark.parametrize("text", ["", "   \n", "# nothing\n", "---\n---\n", "null\n"])
def test_nothing_in_the_file_is_an_error(text: str) -> None:
    (problem,) = read(text, "f.yaml").errors
    assert "empty" in problem.message or "no object" in problem.message


def test_a_file_without_a_job_is_an_error_where_a_job_is_needed() -> None:
    text = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n"
    assert read(text).errors == ()
    with pytest.raises(InvalidManifest, match="no job in the file"):
        read(text, "f.yaml").require_jobs()


def test_scalars_are_read_as_kubectl_reads_them() -> None:
    text = MANIFEST.replace(
        'commands: ["a"]',
        "env: [{name: A, value: 22:22}, {name: B, value: 2020-01-01}, {name: C, value: '1'}]",
    )
    result = read(text)
    assert result.errors == ()
    pod = result.documents[0].raw["spec"]["replicaSpecs"][0]["template"]["spec"]
    assert [e["value"] for e in pod["containers"][0]["env"]] == ["22:22", "2020-01-01", "1"]


@pytest.mark.parametrize("value", ["1", "yes", "true", "1.5", "0x10"])
def test_env_values_that_yaml_reads_as_something_else_must_be_quoted(value: str) -> None:
    text = MANIFEST.replace('commands: ["a"]', f"env: [{{name: A, value: {value}}}]")
    (problem,) = read(text).errors
    assert problem.where.endswith("env[0].value")
    assert "quote it" in problem.message


def test_anchors_and_merge_keys() -> None:
    text = MANIFEST.replace("        - name: pytorch", "        - &c\n          name: pytorch")
    text = text.replace('          commands: ["a"]\n', "")
    result = read(f"{text}        - <<: *c\n          name: other\n")
    assert result.errors == ()
    containers = result.documents[0].raw["spec"]["replicaSpecs"][0]["template"]["spec"][
        "containers"
    ]
    assert containers[1] == {**containers[0], "name": "other"}


def test_aliases_cannot_exhaust_the_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    (problem,) = read("\n".join(lines)).errors
    assert "values" in problem.message


@pytest.mark.parametrize("text", ["[" * 200_000, "- " * 200_000 + "a", "{a: " * 50_000])
def test_deep_nesting_cannot_overflow_the_stack(text: str) -> None:
    assert read(text).errors


def test_a_recursive_alias_is_an_error() -> None:
    assert read("a: &a [*a]").errors


def test_unreadable_files_are_errors_for_the_user(tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"cannot read .*: no such file"):
        read_file(str(tmp_path / "absent.yaml"))
    with pytest.raises(TrainyardError, match="is a directory"):
        read_file(str(tmp_path))
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"a: 1\nb: \xff\xfe\n")
    (problem,) = read_file(str(binary)).errors
    assert (problem.line, problem.column) == (2, 4)


def test_json_and_a_byte_order_mark_are_fine(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_bytes(
        b'\xef\xbb\xbf{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}'
    )
    assert read_file(str(file)).problems == ()


def test_core_kinds_are_checked_against_the_official_schema() -> None:
    text = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringdata: {a: b}\n"
    (problem,) = read(text).errors
    assert problem.suggestion == "stringData"
    assert (problem.line, problem.column) == (4, 1)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_text_in_another_encoding_is_told_as_that(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "m.yaml"
    file.write_bytes(MANIFEST.encode(encoding))
    (problem,) = read_file(str(file)).problems
    assert str(problem).endswith("is UTF-16 or UTF-32 text; save it as UTF-8")


def test_what_cannot_be_left_out_is_not_judged_further() -> None:
    """Found by the fuzzer: a container that is a list, beside a fault that nothing is without."""
    text = """\
kind: PyTorchTrainingJob
metadata: {managedFields: [[1]]}
spec:
  torchrunConfig: {procPerNode: "1"}
  replicaSpecs:
  - type: worker
    template: {spec: {containers: [[{name: digits}]]}}
"""
    found = [problem.message for problem in read(text).problems]
    assert sum("must be a mapping, not a list" in message for message in found) == 2


def test_a_file_without_end_is_not_read_to_its_end() -> None:
    (problem,) = read_file("/dev/zero").problems
    assert "/dev/zero" in str(problem)
    assert "is longer than 12 MiB" in str(problem)
