"""A handler that fails ends what it was for, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from trainyard.podruntime.event_loop import EventLoop

Pipe = tuple[int, int]


@pytest.fixture
def pipes() -> Iterator[list[Pipe]]:
    made = [os.pipe() for _ in range(2)]
    for _, writer in made:
        os.write(writer, b"x")
    yield made
    for pipe in made:
        for fd in pipe:
            os.close(fd)


def fail(_: int) -> None:
    raise RuntimeError("a defect")


def test_a_handler_that_fails_is_told_to_its_owner_and_the_others_go_on(
    pipes: list[Pipe], capfd: pytest.CaptureFixture[str]
) -> None:
    (bad, _), (good, _) = pipes
    loop, errors, handled = EventLoop(), [], []
    loop.register(bad, fail, errors.append)
    loop.register(good, lambda _: handled.append(os.read(good, 1)), errors.append)
    assert loop.run_once(0)
    assert [str(error) for error in errors] == ["a defect"]
    assert handled == [b"x"]
    assert "RuntimeError: a defect" in capfd.readouterr().err


def test_what_can_be_neither_handled_nor_ended_is_given_up(
    pipes: list[Pipe], capfd: pytest.CaptureFixture[str]
) -> None:
    (bad, _), (good, _) = pipes
    loop, handled = EventLoop(), []

    def cannot_end(_: Exception) -> None:
        raise OSError("nor this")

    loop.register(bad, fail, cannot_end)
    assert loop.run_once(0)
    loop.register(good, lambda _: handled.append(os.read(good, 1)), cannot_end)
    assert loop.run_once(0)
    assert not loop.run_once(0), "it is asked no more"
    assert handled == [b"x"]
    assert f"descriptor {bad} is given up" in capfd.readouterr().err


def test_a_new_descriptor_of_an_old_number_is_not_taken_for_the_old_one() -> None:
    loop, called = EventLoop(), []
    pipes = dict([os.pipe(), os.pipe()])
    opened = {*pipes, *pipes.values()}

    def replace(mine: int) -> None:
        """Close the other one, which is ready too, and open one of its number, which is not."""
        (other,) = pipes.keys() - {mine}
        loop.unregister(other)
        empty, writer = os.pipe()
        os.dup2(empty, other)
        os.close(empty)
        opened.add(writer)
        loop.register(other, lambda _: called.append(other), lambda error: None)
        loop.unregister(mine)

    for reader, writer in pipes.items():
        loop.register(reader, lambda _, mine=reader: replace(mine), lambda error: None)
        os.write(writer, b"x")
    assert loop.run_once(1.0)
    assert not loop.run_once(0.0)
    assert called == []
    for fd in opened:
        os.close(fd)
