"""The programs inside the pods: what they do with arguments, variables, reports and exit codes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.shipped_programs import ship
from trainyard.payloads import processes
from trainyard.payloads.launch import launcher_programs, rank_wrapper, replica_agent, sshd_setup
from trainyard.payloads.launch.launch_runner import LaunchRunner
from trainyard.payloads.launch.launcher_programs import describe_exit, shell_exit_code
from trainyard.payloads.launch.ssh_connections import LaunchEvent

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
FOLDER = Path(launcher_programs.__file__).parent


def spec(**changes: Any) -> dict[str, Any]:
    """What the launching pod is told."""
    launch = {"kind": "deepspeed", "form": "python", "program": ["t.py"], "slots": 2}
    return {
        "pod": "pod",
        "port": 2222,
        "hosts": ["a", "b"],
        "places": {"domain": "job.svc"},
        "graceSeconds": 25,
        "launch": launch,
        **changes,
    }


@given(TEXT)
def test_an_argument_survives_deepspeed_pdsh_and_a_shell(argument: str) -> None:
    """Encoded, it has nothing that deepspeed quotes, pdsh expands or a shell reads."""
    encoded = launcher_programs.encode(argument)
    assert not set(encoded) & set(" \t\n\"'\\$`;&|<>()*?[]#~!{}%")
    assert encoded
    assert rank_wrapper.decode(encoded) == argument


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["python", "t.py", "a"], [sys.executable, "-u", "t.py", "a"]),
        (
            ["--local_rank=3", "python", "t.py", "a"],
            [sys.executable, "-u", "t.py", "--local_rank=3", "a"],
        ),
        (["module", "m", "--local_rank=9"], [sys.executable, "-u", "-m", "m", "--local_rank=9"]),
        (["--local_rank=0", "exec", "./x"], ["./x", "--local_rank=0"]),
        (
            ["--local_rank=0", "exec", "python3", "-W", "error", "-u", "x.py", "-a"],
            ["python3", "-W", "error", "-u", "x.py", "--local_rank=0", "-a"],
        ),
        (
            ["--local_rank=0", "exec", "/usr/bin/python3.12", "-m", "pkg", "a"],
            ["/usr/bin/python3.12", "-m", "pkg", "--local_rank=0", "a"],
        ),
    ],
)
def test_a_rank_runs_what_deepspeed_would_have(arguments: list[str], expected: list[str]) -> None:
    assert rank_wrapper.command(arguments) == expected


def test_a_folder_and_a_path_that_no_shell_takes_come_with_the_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd, run = tmp_path / "it's a $HOME\n", tmp_path / "run"
    for folder in (odd, run, tmp_path / "bin"):
        folder.mkdir()
    for name in ("deepspeed", "pdsh"):
        (tmp_path / "bin" / name).write_text(f"#!{sys.executable}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    monkeypatch.setenv("PYTHONPATH", "/lib/a b:/lib")
    monkeypatch.chdir(odd)
    launch = launcher_programs.program(spec(), run)  # type: ignore[arg-type]
    argv, _ = launch.command(["a", "b"])
    assert launch.folder() == "/"
    words = argv[argv.index(str(FOLDER / "rank.py")) + 1 :]
    assert all(launcher_programs.PLAIN.match(word) for word in words)
    monkeypatch.chdir("/")
    assert rank_wrapper.command(words) == [sys.executable, "-u", "t.py"]
    assert Path.cwd() == odd
    assert os.environ["PYTHONPATH"] == f"{odd}:/lib/a b:/lib"


@pytest.mark.parametrize(
    ("kind", "change", "what"),
    [
        ("deepspeed", {"autotune": "tune"}, "working folder"),
        ("colossalai", {"program": ["t.py"], "processes": 1}, "working folder"),
    ],
)
def test_what_a_launcher_hands_to_a_shell_is_refused_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, change: dict[str, Any], what: str
) -> None:
    odd = tmp_path / "a b"
    odd.mkdir()
    for name in ("deepspeed", "pdsh", "colossalai"):
        (tmp_path / name).write_text(f"#!{sys.executable}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(odd)
    given = spec()
    given["launch"] |= {"kind": kind, **change}
    with pytest.raises(launcher_programs.MissingProgram, match=f"hands the {what} '{odd}' to a"):
        launcher_programs.program(given, tmp_path).command(["a"])  # type: ignore[arg-type]


def test_a_python_that_a_shell_would_change_is_refused_before_a_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = tmp_path / "a b"
    odd.mkdir()
    (odd / "python").symlink_to(sys.executable)
    (tmp_path / "deepspeed").write_text(f"#!{odd}/python\n")
    (tmp_path / "deepspeed").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(launcher_programs.MissingProgram, match="hands the Python"):
        launcher_programs.program(spec(), tmp_path).command(["a"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("raise SystemExit(0)", 0),
        ("raise SystemExit(138)", 138),
        ("import os; os.kill(os.getpid(), 9)", 137),
        ("import os; os.kill(os.getpid(), 15)", 143),
    ],
)
def test_a_rank_reports_its_start_and_its_end(tmp_path: Path, script: str, code: int) -> None:
    """And ends with 128 plus the signal, as a process that ended by itself."""
    programs = ship(tmp_path / "programs")
    (tmp_path / "reports").mkdir()
    (tmp_path / "script.py").write_text(f"{script}\n")
    environment = {**os.environ, "TRAINYARD_RUN": str(tmp_path), "RANK": "5"}
    argv = [sys.executable, str(programs / "rank.py"), "python", str(tmp_path / "script.py")]
    assert subprocess.run(argv, env=environment, check=False, timeout=120).returncode == code
    start, end = sorted(os.listdir(tmp_path / "reports"), reverse=True)
    assert start == "start-5"
    assert end.startswith(f"end-5-{code}-")


def test_lines_of_ranks_that_share_a_log_are_whole_and_begin_with_their_rank(
    tmp_path: Path,
) -> None:
    programs = ship(tmp_path / "programs")
    (tmp_path / "reports").mkdir()
    words = "import os, sys\nfor i in range(300): print('out', i); print('err', i, file=sys.stderr)"
    (tmp_path / "script.py").write_text(f"{words}\nprint('unfinished', end='')\n")
    shared = {**os.environ, "TRAINYARD_RUN": str(tmp_path), "WORLD_SIZE": "3"}
    argv = [sys.executable, str(programs / "rank.py"), "python", str(tmp_path / "script.py")]
    with open(tmp_path / "log", "ab") as log:
        ranks = [
            subprocess.Popen(argv, env={**shared, "RANK": str(rank)}, stdout=log, stderr=log)
            for rank in range(3)
        ]
        assert [rank.wait(120) for rank in ranks] == [0, 0, 0]
    said = (tmp_path / "log").read_text().splitlines()
    both = [f"{which} {i}" for i in range(300) for which in ("out", "err")]
    for rank in range(3):
        own = [line for line in said if line.startswith(f"[rank{rank}]: ")]
        assert own == [f"[rank{rank}]: {text}" for text in (*both, "unfinished")]


@settings(max_examples=25)
@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,8}", fullmatch=True), TEXT, max_size=4
    )
)
def test_a_session_has_the_containers_environment_byte_by_byte(
    tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str]
) -> None:
    """Whatever is in the values; run by the real shell, as sshd would."""
    run = tmp_path_factory.mktemp("run folder")
    names = {"PATH", "SHELL", "SSH_ORIGINAL_COMMAND", "TRAINYARD_RUN", "PWD", "SHLVL", "_"}
    names |= {"IFS", "OPTIND", "PPID", "UID", "EUID"}  # the shell's own
    variables = {name: value for name, value in variables.items() if name not in names}
    pairs = [f"{name}={value}".encode() for name, value in variables.items()]
    sshd_setup.prepare_sessions({}, run, pairs)
    show = 'import os, sys; sys.stdout.buffer.write(open("/proc/self/environ", "rb").read())'
    environment = {
        "PATH": os.environ["PATH"],
        "SHELL": "/bin/bash",
        "SSH_ORIGINAL_COMMAND": f"exec {sys.executable} -c '{show}'",
    }
    argv = ["/bin/sh", str(run / "session")]
    output = subprocess.run(argv, env=environment, check=True, capture_output=True, timeout=120)
    found = dict(pair.split(b"=", 1) for pair in output.stdout.split(b"\0") if pair)
    for name, value in variables.items():
        assert found[name.encode()] == value.encode()
    assert found[b"TRAINYARD_RUN"] == os.fsencode(run)


def test_a_failing_session_of_colossalai_is_reported(tmp_path: Path) -> None:
    sshd_setup.prepare_sessions({"reportSessions": True}, tmp_path, [])
    environment = {**os.environ, "SHELL": "/bin/sh", "SSH_ORIGINAL_COMMAND": "exit 7"}
    argv = ["/bin/sh", str(tmp_path / "session")]
    assert subprocess.run(argv, env=environment, check=False, timeout=120).returncode == 7
    end, start = sorted(os.listdir(tmp_path / "reports"))
    assert start.startswith("start-s")
    assert end.split("-")[2] == "7"


def test_without_the_jobs_variables_a_session_has_what_images_set() -> None:
    pairs = [b"PATH=/bin", b"HOME=/x", b"MINE=1", b"FROM_SECRET=2", b"NCCL_MINE=3", b"NCCL_X=4"]
    left = sshd_setup.session_environment(pairs, ["MINE", "NCCL_MINE"], disabled=True)
    assert left == [b"PATH=/bin", b"HOME=/x", b"NCCL_X=4"]
    assert sshd_setup.session_environment(pairs, ["MINE"], disabled=False) == pairs


def test_the_deepspeed_line_has_every_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("deepspeed", "pdsh"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("LITERAL", "plain")
    monkeypatch.setenv("QUOTED", 'a "b" $c')
    monkeypatch.setenv("NCCL_QUOTED", '"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".deepspeed_env").write_text("THEIRS=1")
    (tmp_path / "tabulate.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    given = spec(literalEnv=["LITERAL", "QUOTED"])
    given["launch"] |= {"localRank": False, "autotune": "run", "otherArgs": ["--force_multi"]}
    argv, environment = launcher_programs.program(given, tmp_path).command(["a", "b"])
    hostfile = str(tmp_path / "hostfile")
    assert argv == [
        str(tmp_path / "deepspeed"),
        *("--hostfile", hostfile, "--master_addr", "a.job.svc", "--no_local_rank"),
        *("--autotuning", "run", "--force_multi"),
        *(str(FOLDER / "rank.py"), "python", "t.py"),
    ]
    assert Path(hostfile).read_text() == "a slots=2\nb slots=2\n"
    assert Path(environment["DS_ENV_FILE"]).read_text().startswith("LITERAL=plain\nTHEIRS=1\n")
    assert "NCCL_QUOTED" not in environment
    (tmp_path / "pdsh").unlink()
    with pytest.raises(launcher_programs.MissingProgram, match="pdsh not found"):
        launcher_programs.program(given, tmp_path).command(["a", "b"])
    launcher_programs.program(given, tmp_path).command(["a"])


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ([], ["worker-0", "worker-1", "worker-2"]),
        (["--include", "worker-2@worker-1:0"], ["worker-1", "worker-2"]),
        (["--include=worker-1"], ["worker-1"]),
        (["-iworker-1", "--master_port", "1"], ["worker-1"]),
        (["--exclude", "worker-0:1"], ["worker-0", "worker-1", "worker-2"]),
        (["--exclude", "worker-0:0,1@worker-2"], ["worker-1"]),
        (["-e", "worker-0"], ["worker-1", "worker-2"]),
        (["--exclu=worker-0@worker-1@worker-2"], ["worker-0", "worker-1", "worker-2"]),
    ],
)
def test_rank_0_is_on_the_first_replica_that_is_left(options: list[str], left: list[str]) -> None:
    """By deepspeed's own rules; what leaves none is for deepspeed to refuse."""
    assert (
        launcher_programs.selected_hosts(["worker-0", "worker-1", "worker-2"], 2, options) == left
    )


def test_a_single_replica_elsewhere_is_reached_over_pdsh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """deepspeed runs what it has for one host where it is itself, whatever the host."""
    for name in ("deepspeed", "pdsh"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for other, is_forced in (("b", True), ("a", False)):
        given = spec()
        given["launch"] |= {"otherArgs": ["--include", other]}
        argv = launcher_programs.program(given, tmp_path).arguments(["a", "b"])
        assert ("--force_multi" in argv) is is_forced
        assert argv[argv.index("--master_addr") + 1] == f"{other}.job.svc"


def test_a_package_that_tuning_needs_is_missed_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deepspeed").write_text(f"#!{sys.executable}\n")
    (tmp_path / "deepspeed").chmod(0o755)
    (tmp_path / "tabulate.py").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    given = spec()
    given["launch"] |= {"autotune": "tune"}
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    launcher_programs.program(given, tmp_path).command(["a"])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "nothing"))
    (tmp_path / "tabulate.py").unlink()
    if importlib.util.find_spec("tabulate"):
        pytest.skip("tabulate is installed here")
    with pytest.raises(
        launcher_programs.MissingProgram, match=r"tabulate not found: .*\[autotuning\]"
    ):
        launcher_programs.program(given, tmp_path).command(["a"])


@pytest.mark.parametrize(
    ("script", "tail"),
    [
        (["t.py", "-m", "x"], ["--", "t.py", "-m", "x"]),
        (["-m", "package.t", "--flag"], ["-m", "package.t", "--", "--flag"]),
    ],
)
def test_the_colossalai_line_keeps_options_and_script_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: list[str], tail: list[str]
) -> None:
    (tmp_path / "colossalai").write_text("#!/usr/bin/env python3\n")
    (tmp_path / "colossalai").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    launch = {"kind": "colossalai", "program": script, "processes": 2}
    launch["extraArgs"] = ["x=1", "y", "rdzv_conf=timeout=900,b=1"]
    argv, _ = launcher_programs.program(spec(launch=launch), tmp_path).command(["a", "b"])
    options = ["run", "--nproc_per_node", "2", "--master_addr", "a.job.svc"]
    options += ["--hostfile", str(tmp_path / "hostfile"), "--extra_launch_args"]
    options += [r"x=1,y,rdzv_conf=timeout$(printf '\075')900$(printf '\054')b$(printf '\075')1"]
    assert argv[argv.index("run") :] == [*options, *tail]
    assert (tmp_path / "hostfile").read_text() == "a.job.svc\nb.job.svc\n"


@pytest.mark.parametrize(
    ("code", "expected"),
    [(0, 0), (1, 1), (-9, 137), (247, 137), (241, 143), (138, 138), (127, 127)],
)
def test_a_launchers_code_as_a_shell_would_give_it(code: int, expected: int) -> None:
    assert shell_exit_code(code) == expected


def test_how_a_rank_ended_is_told() -> None:
    assert describe_exit(1) == "failed with exit code 1"
    assert describe_exit(137) == "failed with exit code 137 (SIGKILL)"


def reported(launch: LaunchRunner, host: str, report: str) -> None:
    """A report from a host, taken in."""
    launch.take_report(LaunchEvent("report", host, report))


@pytest.fixture
def launched(tmp_path: Path) -> LaunchRunner:
    """A launch over two hosts in the middle of its run."""
    made = LaunchRunner(spec(), tmp_path)
    made.members = ["a", "b"]
    made.ready = {"a", "b"}
    for host, number in (("a", 0), ("b", 1)):
        reported(made, host, f"start-{number}")
    return made


def test_the_first_failure_gives_the_exit_code(launched: LaunchRunner) -> None:
    """By time, not by arrival, corrected by how far a replica's clock is ahead."""
    launched.connections["b"].clock_ahead = 100.0
    reported(launched, "a", "end-0-1-50000000000")
    reported(launched, "b", "end-1-137-149000000000")
    assert launched.exit_code(1) == 137


def test_a_lost_replica_is_the_cause_of_its_peers_failures(launched: LaunchRunner) -> None:
    reported(launched, "a", "end-0-1-50000000000")
    launched.lose_replica("b", "gone")
    assert launched.exit_code(255) == 137


def test_a_failed_rank_is_never_a_success(launched: LaunchRunner) -> None:
    """deepspeed may end with 0 although a rank failed, or vanished without a word."""
    reported(launched, "a", "end-0-0-1")
    assert launched.exit_code(0) == 1
    reported(launched, "b", "end-1-9-2")
    assert launched.exit_code(0) == 9


def test_a_launch_that_started_no_rank_is_no_success(tmp_path: Path) -> None:
    assert LaunchRunner(spec(), tmp_path).exit_code(0) == 1


def test_all_ranks_ended_well(launched: LaunchRunner) -> None:
    reported(launched, "a", "end-0-0-1")
    reported(launched, "b", "end-1-0-2")
    assert launched.exit_code(0) == 0


def test_what_ranks_do_when_they_are_told_to_end_means_nothing(launched: LaunchRunner) -> None:
    launched.stopping = True
    reported(launched, "a", "end-0-143-1")
    assert launched.failures == []


def test_an_elastic_launch_starts_with_enough_settled_replicas(tmp_path: Path) -> None:
    elastic = {"min": 2, "settleSeconds": 30}
    launch = LaunchRunner(spec(hosts=["a", "b", "c"], elastic=elastic), tmp_path)
    for host, starts in (("b", False), ("c", False), ("a", True)):
        launch.events.put(LaunchEvent("ready", host))
        launch.next_event(1)
        assert launch.can_start() is starts
    launch.lose_replica("c", "gone")
    assert not launch.can_start()
    launch.changed_at -= 30
    assert launch.can_start()
    launch.lose_replica("a", "gone")
    assert not launch.can_start()


def test_an_agent_takes_over_from_one_whose_launch_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends what that launch left, and forgets what was reported to it."""
    folder = ship(tmp_path / "programs")
    monkeypatch.setattr(processes, "OWN_FOLDER", os.fsencode(folder))
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "start-0").touch()
    (tmp_path / "former" / "reports").mkdir(parents=True)
    supervisor = subprocess.Popen(["sleep", "60"])
    argv = [
        sys.executable,
        "-I",
        str(folder / "minder.py"),
        str(tmp_path / "former"),
        str(supervisor.pid),
    ]
    former = subprocess.Popen(argv, stdin=-1, stdout=-1)
    assert former.stdout is not None
    assert former.stdout.readline().startswith(b"hello")
    (tmp_path / "minder").write_text(str(former.pid))
    with former, supervisor:
        replica_agent.ReplicaAgent(tmp_path, supervisor.pid).claim()
        assert former.wait(120) == -9
        assert supervisor.wait(120) == -12
    assert (tmp_path / "minder").read_text() == str(os.getpid())
    assert list((tmp_path / "reports").iterdir()) == []
