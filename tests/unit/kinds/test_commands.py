"""``validate``, ``convert`` and ``crds`` as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from tests.unit.kinds import manifests as m

from trainyard.cli.commands.convert import command as convert
from trainyard.cli.commands.crds import command as crds
from trainyard.cli.commands.render import command as render
from trainyard.cli.commands.validate import command as validate
from trainyard.kinds.kind_registry import KINDS
from trainyard.schema.errors import TrainyardError


@pytest.fixture
def good(tmp_path: Path) -> Path:
    file = tmp_path / "good.yaml"
    file.write_text(yaml.safe_dump(m.pytorch()))
    return file


@pytest.fixture
def old(tmp_path: Path) -> Path:
    file = tmp_path / "old.yaml"
    file.write_text(yaml.safe_dump(m.pytorch(runMode={"debug": {"enable": False}})))
    return file


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    file = tmp_path / "bad.yaml"
    file.write_text(yaml.safe_dump(m.pytorch(replicaSpec=1)))
    return file


def test_valid_files_exit_with_0(good: Path, old: Path) -> None:
    result = CliRunner().invoke(validate, ["-f", str(good), str(old)])
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert f"{good}: 1 object valid" in lines
    assert f"{old}: 1 object valid, 1 warning" in lines


def test_every_problem_of_every_file_is_printed_and_the_exit_is_1(bad: Path, good: Path) -> None:
    missing = bad.parent / "missing.yaml"
    result = CliRunner().invoke(validate, ["-f", str(bad), "-f", str(good), "-f", str(missing)])
    assert result.exit_code == 1
    assert "spec.replicaSpec: unknown field; did you mean 'replicaSpecs'?" in result.output
    assert f"cannot read {missing}: no such file or directory" in result.output
    assert "Traceback" not in result.output


def test_warnings_are_errors_with_strict(old: Path) -> None:
    assert CliRunner().invoke(validate, ["-f", str(old), "--strict"]).exit_code == 1


def test_problems_as_json(bad: Path) -> None:
    result = CliRunner().invoke(validate, ["-f", str(bad), "-o", "json"])
    (row,) = json.loads(result.stdout)
    assert (row["path"], row["suggestion"], row["line"] > 0) == (
        "spec.replicaSpec",
        "replicaSpecs",
        True,
    )


def test_standard_input(good: Path) -> None:
    result = CliRunner().invoke(validate, ["-f", "-"], input=good.read_text())
    assert result.exit_code == 0


def test_convert_keeps_line_ends_and_reads_utf8_in_any_locale(old: Path) -> None:
    text = f"# \u00fc\r\n{old.read_text()}".replace("\r", "").replace("\n", "\r\n")
    old.write_bytes(text.encode())
    assert CliRunner().invoke(convert, ["-i", "-f", str(old)]).exit_code == 0
    assert old.read_bytes().decode() == text.replace("enable:", "enabled:")


def test_convert_of_several_files_prints_one_stream(old: Path, good: Path) -> None:
    result = CliRunner().invoke(convert, ["-f", str(old), "-f", str(good)])
    converted = list(yaml.safe_load_all(result.stdout))
    assert converted == [m.pytorch(runMode={"debug": {"enabled": False}}), m.pytorch()]


def test_convert_of_bytes_that_are_no_text_says_where(tmp_path: Path) -> None:
    result = CliRunner().invoke(convert, ["-f", "-"], input=b"a: 1\nb: \xff\n")
    assert isinstance(result.exception, TrainyardError)
    assert str(result.exception) == "<stdin>:2:4: error: is not UTF-8 text"


def test_render_of_several_files_leaves_none_out(good: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump(m.generic()))
    result = CliRunner().invoke(render, ["-f", str(good), "-f", str(other)])
    components = {
        obj["metadata"]["labels"]["tensorstack.dev/component"]
        for obj in yaml.safe_load_all(result.stdout)
    }
    assert components == {"pytorchtrainingjob", "genericjob"}


def test_convert_prints_or_writes(old: Path) -> None:
    shown = CliRunner().invoke(convert, ["-f", str(old)])
    assert shown.exit_code == 0
    assert "enabled: false" in shown.stdout
    assert "enable: false" in old.read_text()
    assert CliRunner().invoke(convert, ["-f", str(old), "--in-place"]).exit_code == 0
    assert old.read_text() == shown.stdout


def test_convert_names_what_it_cannot_read(tmp_path: Path) -> None:
    result = CliRunner().invoke(convert, ["-f", str(tmp_path / "x.yaml")])
    assert isinstance(result.exception, TrainyardError)
    assert "no such file" in str(result.exception)


def test_crds_are_printed_for_all_kinds_or_one() -> None:
    everything = list(yaml.safe_load_all(CliRunner().invoke(crds, []).stdout))
    assert [item["spec"]["names"]["kind"] for item in everything] == list(KINDS)
    one = CliRunner().invoke(crds, ["--kind", "DeepSpeedJob"])
    assert yaml.safe_load(one.stdout)["metadata"]["name"] == "deepspeedjobs.batch.tensorstack.dev"
    wrong = CliRunner().invoke(crds, ["--kind", "DeepspeedJob"])
    assert wrong.exit_code == 2
    assert "DeepSpeedJob" in wrong.output


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("DeepspeedJob", "did you mean DeepSpeedJob?"),
        ("foo", f"known are: {', '.join(KINDS)}"),
    ],
)
def test_crds_of_an_unknown_kind_names_the_nearest_or_all(asked: str, hint: str) -> None:
    result = CliRunner().invoke(crds, ["--kind", asked])
    assert result.exit_code == 2
    assert f"unknown kind '{asked}'; {hint}\n" in result.output
