"""The launchers that a launch runs: ``deepspeed``, ``colossalai run``, or the user's own command.

This says how each is called, and how its exit code reads. `launch_runner` decides when to run it.
"""

from __future__ import annotations

import argparse
import base64
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

from trainyard.payloads.launch.hostfile import address

if TYPE_CHECKING:  # types are not shipped to pods
    from trainyard.payloads.payload_messages import (
        ColossalAILaunch,
        CommandLaunch,
        DeepSpeedLaunch,
        LaunchDescription,
        PreflightRequest,
    )

ENCODED = "encoded-argument:"
PLAIN = re.compile(r"[\w@+=:,./-]+\Z", re.ASCII)
"""What neither pdsh, nor a shell, nor deepspeed's env file changes."""
UNCHANGED = re.compile(r"[\w@+=:,./-]+\Z")
"""What a shell does not change, in any language's letters."""
EXPORTED = re.compile(r"(MLFLOW|PYTHON|MV2|UCX|NCCL|LD_LIBRARY|PATH)")
"""deepspeed exports variables that begin so to all workers, hardly quoted."""


class MissingProgram(Exception):
    """A program that the launch needs is not in the image, or does not run."""

    def __init__(self, name: str, hint: str) -> None:
        super().__init__(f"{name} not found: {hint}")


class ChangedByShell(MissingProgram):
    """A path that a launcher hands to a shell, which would change it."""

    def __init__(self, what: str, path: str, launcher: str) -> None:
        text = f"{launcher} hands the {what} {path!r} to a shell, which would change it: "
        Exception.__init__(self, f"{text}call it by letters, digits and -._ alone")


def require(name: str, hint: str) -> str:
    """The program's path; an error that names it otherwise."""
    path = shutil.which(name)
    if path is None:
        raise MissingProgram(name, hint)
    return path


def require_module(name: str, script: str, hint: str) -> None:
    """That the Python of a console script can import this; an error that names it otherwise."""
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
    if subprocess.run([interpreter(script), "-c", code, name], check=False).returncode:
        raise MissingProgram(f"the Python package {name}", hint)


def encode(argument: str) -> str:
    """The argument as ``rank.py`` decodes it, if anything on its way could change it."""
    if PLAIN.match(argument) and not argument.startswith(ENCODED):
        return argument
    data = argument.encode("utf-8", "surrogateescape")
    return ENCODED + base64.urlsafe_b64encode(data).decode()


class Program:
    """A launcher: what to run once the replicas answer. This one is the user's own command."""

    name = "the command"
    must_start_ranks = False
    """Whether an exit code 0 is doubted when no rank was ever started."""
    failures_count = True
    """Whether a failed rank ends the launch."""

    def __init__(self, spec: LaunchDescription, run: Path) -> None:
        self.spec, self.run = spec, run

    def preflight_request(self) -> PreflightRequest | None:
        """What every replica must have; None where that is not known."""
        return None

    def folder(self) -> str:
        """Where the launcher is started; the working folder, unless that harms it."""
        return os.getcwd()

    def check_path(self, what: str, path: str) -> None:
        """Raise ChangedByShell for a path that does not come through a shell as it is."""
        if not UNCHANGED.match(path):
            raise ChangedByShell(what, path, self.name)

    def command(self, members: list[str]) -> tuple[list[str], dict[str, str]]:
        """Arguments and environment of the launch for these replicas."""
        environment = dict(os.environ)
        environment["TRAINYARD_HOSTFILE"] = str(self.hostfile(members))
        return self.arguments(members), environment

    def arguments(self, members: list[str]) -> list[str]:
        """The user's own command."""
        launch = cast("CommandLaunch", self.spec["launch"])
        if "script" not in launch:
            return launch["argv"]
        # A file, because the kernel allows an argument 128 KiB (MAX_ARG_STRLEN).
        path = self.run / "command"
        path.write_text(launch["script"], encoding="utf-8", errors="surrogateescape")
        return [*launch["argv"], str(path)]

    def hostfile(self, members: list[str]) -> Path:
        """A hostfile of these replicas; with all of them, it equals the mounted one."""
        path = self.run / "hostfile"
        slots = self.spec["launch"].get("slots")
        suffix = f" slots={slots}" if slots else ""
        path.write_text("".join(f"{self.address_of(host)}{suffix}\n" for host in members))
        return path

    def address_of(self, host: str) -> str:
        """What the launcher is to call a replica."""
        return host


class DeepSpeed(Program):
    """``deepspeed`` with ``rank.py`` around the user's program."""

    name = "deepspeed"
    must_start_ranks = True

    def __init__(self, spec: LaunchDescription, run: Path) -> None:
        super().__init__(spec, run)
        # The autotuner's experiments are allowed to fail.
        self.line = cast("DeepSpeedLaunch", spec["launch"])
        self.failures_count = not self.line.get("autotune")
        self.must_start_ranks = self.failures_count

    def preflight_request(self) -> PreflightRequest | None:
        form, program = self.line["form"], self.line["program"]
        deepspeed = require("deepspeed", "install deepspeed in the image")
        script = program[0] if form == "python" else ""
        return {"folder": os.getcwd(), "program": interpreter(deepspeed), "script": script}

    def folder(self) -> str:
        """deepspeed has a shell go to its own folder: `rank.py` goes to the right one instead."""
        return os.getcwd() if PLAIN.match(os.getcwd()) else "/"

    def command(self, members: list[str]) -> tuple[list[str], dict[str, str]]:
        """As every program's, plus the environment file."""
        argv, environment = super().command(members)
        for name, value in list(environment.items()):
            if EXPORTED.match(name) and re.search(r'["$`\\%\n]', value):
                del environment[name]
        environment["DS_ENV_FILE"] = str(self.environment_file())
        return argv, environment

    def environment_file(self) -> Path:
        """Literal variables that the format can carry, then what the user's own files say.

        The others, and whatever differs between replicas, reach the ranks through their session.
        """
        path = self.run / "deepspeed_env"
        lines = []
        for name in self.spec.get("literalEnv", []):
            value = os.environ.get(name, "")
            if PLAIN.match(value):
                lines.append(f"{name}={value}\n")
        for theirs in (Path("~/.deepspeed_env").expanduser(), Path(".deepspeed_env")):
            if theirs.is_file():
                given = theirs.read_text().splitlines()
                lines += [f"{line}\n" for line in given if "=" in line]
        path.write_text("".join(lines))
        return path

    def arguments(self, members: list[str]) -> list[str]:
        """The ``deepspeed`` line."""
        launch = self.line
        deepspeed = require("deepspeed", "install deepspeed in the image")
        rank = str(Path(__file__).parent / "rank.py")
        self.check_path("program", rank)
        self.check_path("Python", interpreter(deepspeed))
        if launch.get("autotune"):  # its experiments are kept in the folder
            self.check_path("working folder", os.getcwd())
        active = selected_hosts(members, launch.get("slots", 1), launch.get("otherArgs", []))
        master = address(self.spec["places"], active[0])
        options = ["--hostfile", str(self.hostfile(members)), "--master_addr", master]
        is_elsewhere = len(active) == 1 and active[0] != members[0]
        if is_elsewhere:  # deepspeed takes a single host, whichever, to be the one that it runs on
            options.append("--force_multi")
        if len(active) > 1 or is_elsewhere:
            require("pdsh", "install pdsh in the image; deepspeed uses it with several workers")
        if "masterPort" in launch:
            options += ["--master_port", str(launch["masterPort"])]
        if not launch.get("localRank", True):
            options.append("--no_local_rank")
        if launch.get("autotune"):
            require_module(
                "tabulate", deepspeed, "pip install 'deepspeed[autotuning]' in the image"
            )
            options += ["--autotuning", launch["autotune"]]
        program = [launch["form"], *launch["program"]]
        places = [os.getcwd(), os.environ.get("PYTHONPATH", "")]
        if not all(PLAIN.match(place or "-") for place in places):
            program = ["in", *places, *program]
        program = [encode(word) for word in program]
        return [deepspeed, *options, *launch.get("otherArgs", []), rank, *program]


def selected_hosts(members: list[str], slots: int, options: list[str]) -> list[str]:
    """The replicas that ``--include`` or ``--exclude`` leave, the first of which has rank 0.

    All, where deepspeed itself will refuse what is given.
    """
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("-i", "--include", default="")
    parser.add_argument("-e", "--exclude", default="")
    given, _ = parser.parse_known_args(options)
    named: dict[str, set[str]] = {}
    for node in (given.include or given.exclude).split("@"):
        host, _, listed = node.partition(":")
        named.setdefault(host, set()).update(
            listed.split(",") if listed else map(str, range(slots))
        )
    if given.include:
        left = [host for host in members if host in named]
    else:
        left = [host for host in members if len(named.get(host, ())) < slots]
    return left or members


class ColossalAI(Program):
    """``colossalai run``, which looks the names in its hostfile up itself, without ssh's help."""

    name = "colossalai run"
    must_start_ranks = True

    def preflight_request(self) -> PreflightRequest | None:
        first = cast("ColossalAILaunch", self.spec["launch"])["program"][0]
        script = "" if first == "-m" else first
        return {"folder": os.getcwd(), "program": "torchrun", "script": script}

    def address_of(self, host: str) -> str:
        """A name or address that can be looked up."""
        return address(self.spec["places"], host)

    def arguments(self, members: list[str]) -> list[str]:
        """The ``colossalai run`` line behind its bootstrap."""
        launch = cast("ColossalAILaunch", self.spec["launch"])
        self.check_path("working folder", os.getcwd())
        script = require("colossalai", "install colossalai in the launcher's image")
        master = self.address_of(members[0])
        options = ["--nproc_per_node", str(launch["processes"]), "--master_addr", master]
        options += ["--hostfile", str(self.hostfile(members))]
        if "masterPort" in launch:
            options += ["--master_port", str(launch["masterPort"])]
        if launch.get("extraArgs"):
            extra = [extra_argument(option) for option in launch["extraArgs"]]
            options += ["--extra_launch_args", ",".join(extra)]
        program = launch["program"]
        # ``-m`` is an option of colossalai itself and must come before the ``--`` (decision 16).
        tail = ["-m", program[1], "--", *program[2:]] if program[0] == "-m" else ["--", *program]
        bootstrap = str(Path(__file__).parent / "colossalai_run.py")
        head = [interpreter(script), bootstrap, str(self.run / "ssh" / "config"), script]
        return [*head, self.spec["pod"], "run", *options, *tail]


def extra_argument(option: str) -> str:
    """A torchrun option for ``--extra_launch_args``, which cuts at every ``,`` and ``=``.

    Measured: a second ``=`` ends ``colossalai run`` with a traceback and its processes stay. What
    it cuts out goes through the workers' shell, which puts those characters back in.
    """
    name, sets, value = option.partition("=")
    escaped = value.replace("=", r"$(printf '\075')").replace(",", r"$(printf '\054')")
    return f"{name}{sets}{escaped}"


def interpreter(script: str) -> str:
    """The Python that a console script names in its first line, else our own."""
    return named_interpreter(script) or sys.executable


def named_interpreter(script: str) -> str:
    """The program that a script names in its first line; empty if it cannot be run."""
    with open(script, "rb") as file:
        first = file.readline(4096)
    named = first[2:].strip().decode(errors="replace") if first.startswith(b"#!") else ""
    return named if named.startswith("/") and os.access(named, os.X_OK) else ""


def program(spec: LaunchDescription, run: Path) -> Program:
    """The program of a launch."""
    kinds = {"command": Program, "deepspeed": DeepSpeed, "colossalai": ColossalAI}
    return kinds[spec["launch"]["kind"]](spec, run)


def shell_exit_code(code: int) -> int:
    """A launcher's code as a shell would give it: 128 plus the signal.

    ``subprocess`` knows a signal as its negative number, which ``sys.exit`` cuts to eight bits:
    deepspeed makes 247 of SIGKILL.
    """
    if code < 0:
        return 128 - code
    return 128 + 256 - code if code > 256 - signal.NSIG else code


def describe_exit(code: int) -> str:
    """``failed with exit code 1`` or ``failed with exit code 137 (SIGKILL)``."""
    try:
        return f"failed with exit code {code} ({signal.Signals(code - 128).name})"
    except ValueError:
        return f"failed with exit code {code}"
