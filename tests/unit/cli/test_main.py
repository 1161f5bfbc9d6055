"""The command line's root."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from trainyard import __version__
from trainyard.cli.main import Commands, cli
from trainyard.composition.expected_errors import expected_error
from trainyard.schema.errors import TrainyardError


def test_every_listed_command_can_be_loaded_and_explains_itself() -> None:
    assert isinstance(cli, Commands)
    for name in cli.list_commands(click.Context(cli)):
        result = CliRunner().invoke(cli, [name, "--help"])
        assert result.exit_code == 0, name
        assert "Usage:" in result.output


@pytest.mark.parametrize("name", ["run", "init", "submit"])
def test_every_command_knows_the_short_question(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "-h"])
    assert result.exit_code == 0, result.output


def test_the_root_imports_nothing_heavy() -> None:
    """Start-up is imports; `run` forks its shim before any of these."""
    heavy = ("pydantic", "asyncio", "rich", "aiohttp", "yaml", "cryptography", "orjson")
    for module in ("trainyard.cli.main", "trainyard.cli.commands.run", "trainyard.cli.commands.up"):
        code = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
        )
        assert done.stdout.strip() == "[]", module


def test_the_version_is_printed() -> None:
    result = CliRunner().invoke(cli, ["--version"])
    assert __version__ in result.output


def test_an_unknown_command_is_refused() -> None:
    result = CliRunner().invoke(cli, ["trian"])
    assert result.exit_code == 2
    assert "trian" in result.output


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("lst", "list"),
        ("describe", "show"),
        ("get", "list"),
        ("apply", "submit"),
        ("stop", "pause"),
        ("remove", "delete"),
    ],
)
def test_a_command_of_another_name_is_answered_with_ours(word: str, meant: str) -> None:
    result = CliRunner().invoke(cli, [word, "x"])
    assert result.exit_code == 2
    assert f"No such command '{word}'. Did you mean {meant}?" in result.output


@pytest.mark.parametrize("word", ["dwn", "don", "delte", "dele"])
def test_a_slip_of_the_keyboard_is_never_answered_with_what_destroys(word: str) -> None:
    result = CliRunner().invoke(cli, [word, "x"])
    assert result.exit_code == 2
    assert not {"down?", "delete?"} & set(result.output.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_completion_script(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0
    assert f"_TRAINYARD_COMPLETE={shell}_complete" in result.output


@pytest.mark.parametrize(
    ("words", "offered"),
    [("trainyard to", "plain,top"), ("trainyard top --so", "plain,--sort-by")],
)
def test_commands_and_options_are_completed(
    words: str, offered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    result = CliRunner().invoke(
        cli, prog_name="trainyard", env={"_TRAINYARD_COMPLETE": "bash_complete"}
    )
    assert result.output.split() == [offered]


def test_the_first_error_of_nested_groups_is_what_the_user_reads() -> None:
    first = TrainyardError("first")
    group = ExceptionGroup("", [ExceptionGroup("", [first]), TrainyardError("second")])
    assert expected_error(group) is first


def test_a_group_with_a_defect_is_not_taken_for_a_users_mistake() -> None:
    group = ExceptionGroup("", [TrainyardError("mine"), ValueError("a defect")])
    assert expected_error(group) is None


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("y")])
def test_a_defect_alone_is_not_taken_for_one_either(error: Exception) -> None:
    assert expected_error(error) is None
