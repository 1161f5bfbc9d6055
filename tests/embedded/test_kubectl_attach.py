"""`kubectl run -it` and `kubectl attach`, as a user has them, on a cluster of `trainyard up`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.embedded.command_line import CommandLine
from tests.embedded.users_kubectl import UsersKubectl
from tests.tools import kubectl_path, oldest_and_newest_kubectl

NUMBERS = "".join(f"{number}\n" for number in range(100_000))
RUN = ("run", "--rm", "--restart=Never", "--image=x", "--pod-running-timeout=5m")


@pytest.fixture(scope="module")
def trainyard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    line = CommandLine(tmp_path_factory.mktemp("up"))
    try:
        line.run("up")
        yield line
        line.run("down")
    finally:
        line.kill_everything()


@pytest.fixture(params=oldest_and_newest_kubectl())
def kubectl(request: pytest.FixtureRequest, trainyard: CommandLine) -> UsersKubectl:
    return UsersKubectl(trainyard, kubectl_path(request.param))


def test_a_pod_reads_what_is_piped_in_and_answers(kubectl: UsersKubectl) -> None:
    answer = kubectl(*RUN, "-i", "--quiet", "filter", "--", "cat", stdin=NUMBERS)
    assert answer == NUMBERS
    said = kubectl(*RUN, "-i", "fails", "--", "sh", "-c", "cat; exit 3", stdin="x", codes=(3,))
    assert "terminated (Error)" in said


def test_a_shell_on_a_terminal(kubectl: UsersKubectl) -> None:
    with kubectl.on_terminal(*RUN, "-it", "shell", "--", "sh", "-i") as terminal:
        terminal.until("try pressing enter")
        # Its size is told beside what is typed, not before.
        terminal.type("\nwhile ! stty size | grep '40 100'; do sleep 0.1; done; echo on $TERM\n")
        terminal.until("40 100\r\non xterm")
        terminal.resize(77, 33)
        terminal.type("while ! stty size | grep '33 77'; do sleep 0.1; done\n")
        terminal.until("33 77\r")
        terminal.type("sh -c 'echo $((40 + 1)) sleeps; exec sleep 1000'\n")
        terminal.until("41 sleeps")
        terminal.type("\x03")
        terminal.until(r"\^C")
        terminal.type("echo $((6 * 7)) is the answer\n")
        terminal.until("42 is the answer")
        terminal.type("exit 5\n")
        code, shown = terminal.end()
    assert code == 5, shown
    assert "discarding message" not in shown
    assert "not found" in kubectl("get", "pod", "shell", codes=(1,))


def test_a_terminal_is_left_and_met_again(kubectl: UsersKubectl) -> None:
    kubectl("run", "stays", "--image=x", "-it", "--attach=false", "--", "sh")
    try:
        kubectl("wait", "pod/stays", "--for=condition=Ready", "--timeout=5m")
        with kubectl.on_terminal("attach", "-it", "stays") as terminal:
            terminal.until("try pressing enter")
            terminal.type("word=kept; echo $((40 + 2))\n")
            terminal.until("42")  # which the shell alone says: kubectl's terminal may echo, too
        with kubectl.on_terminal("attach", "-it", "stays") as terminal:
            terminal.until("try pressing enter")
            terminal.type("echo $word by the shell\n")
            terminal.until("kept by the shell")
        assert "kept by the shell" in kubectl("logs", "stays")
        events = kubectl("events", "--for=pod/stays", "--types=Warning")
        assert "tty" not in events
    finally:
        kubectl("delete", "pod", "stays", "--grace-period=1")
