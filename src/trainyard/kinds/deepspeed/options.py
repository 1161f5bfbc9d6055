"""Options of ``deepspeed`` in `otherArgs`: which are ours to give, and which hosts they choose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from trainyard.kinds.deepspeed.spec import DeepSpeedConfig
from trainyard.kinds.shared.launch import torchrun_options
from trainyard.kinds.shared.run_policy import WORKER
from trainyard.schema.problems import Path, Problem, error, warning

_PATH: Path = ("spec", "config", "otherArgs")
_FORBIDDEN = {
    "--no_local_rank": "set config.localRank to false instead",
    "--autotuning": "set config.autotune instead",
    "--module": "use config.run.module instead",
    "--no_python": "use config.run.exec instead",
    "--hostfile": "the hostfile is made by the controller",
    "-H": "the hostfile is made by the controller",
    "--no_ssh": "the workers are reached over ssh",
    "--ssh_port": "the port is set by the controller",
}
_USELESS = ("--save_pid", "--enable_each_rank_log", "--bind_cores_to_rank", "--bind_core_list")
"""Options of deepspeed without effect when it launches over pdsh."""
_INCLUDE, _EXCLUDE = "--include", "--exclude"
_LIMITS = ("--num_nodes", "--num_gpus", "--num_accelerators")
_NODE = re.compile(rf"{WORKER}-(0|[1-9]\d{{0,8}})\Z", re.ASCII)
_SLOT = re.compile(r"\d{1,9}\Z", re.ASCII)


class Pool(NamedTuple):
    """The most workers of the job, and the processes of each."""

    workers: int
    slots: int
    is_elastic: bool


class _Option(NamedTuple):
    name: str
    value: str
    path: Path


def check(config: DeepSpeedConfig, pool: Pool) -> Iterator[Problem]:
    """Every problem of the options."""
    yield from torchrun_options.check_stray_words(config.other_args, _PATH, "config.run")
    for option in _options(config.other_args):
        flag, path = option.name, option.path
        if forbidden := _forbidden(flag):
            yield error(path, f"{forbidden} is not allowed here; {_FORBIDDEN[forbidden]}")
        elif flag == "--launcher":
            if option.value != "pdsh":
                yield error(path, f"only --launcher=pdsh is supported, not '{option.value[:40]}'")
        elif flag == "--elastic_training" and not config.local_rank:
            yield error(path, "--elastic_training cannot be used with localRank: false")
        elif flag == "--master_addr":
            yield warning(path, "overrides --master_addr, which is the host of rank 0")
        elif flag in _LIMITS[1:]:
            yield warning(path, f"{flag} overrides config.slotsPerWorker")
        elif flag in _USELESS:
            yield warning(path, f"{flag} has no effect: the workers are reached through pdsh")
    yield from _check_filter(config, pool)


def _options(args: tuple[str, ...]) -> Iterator[_Option]:
    """Each word with its possible value: what follows `=`, else the next word."""
    for index, word in enumerate(args):
        flag, equals, value = word.partition("=")
        if flag[:2] in ("-i", "-e") and len(flag) > 2:  # glued, as argparse allows
            flag, value = word[:2], word[2:].removeprefix("=")
        elif not equals:
            value = next(iter(args[index + 1 : index + 2]), "")
        yield _Option(flag, value, (*_PATH, index))


def _forbidden(flag: str) -> str | None:
    """The forbidden option that a word stands for: argparse takes any unambiguous beginning
    (decision 5)."""
    if flag in _FORBIDDEN:
        return flag
    if flag.startswith("-H"):
        return "-H"
    if len(flag) > len("--") and flag.startswith("--"):
        return next((name for name in _FORBIDDEN if name.startswith(flag)), None)
    return None


def _check_filter(config: DeepSpeedConfig, pool: Pool) -> Iterator[Problem]:
    """What deepspeed would refuse of `--include` and `--exclude` once all workers run."""
    # parse_resource_filter() and main() in deepspeed/launcher/runner.py; decision 110
    given = [(_filter_of(option.name), option) for option in _options(config.other_args)]
    chosen = [(name, option) for name, option in given if name]
    if not chosen:
        return
    name, option = chosen[-1]
    if len({name for name, _ in chosen}) > 1:
        yield error(option.path, "--include and --exclude cannot be used together")
        return
    if any(option.name in _LIMITS for _, option in given):
        yield error(option.path, f"{name} cannot be used with {' or '.join(_LIMITS[:2])}")
    named: dict[str, set[int]] = {}
    for node in option.value.split("@"):
        host, colon, listed = node.partition(":")
        found = listed.split(",") if colon else [str(slot) for slot in range(pool.slots)]
        if problem := _unknown_slot(host, found, pool):
            yield error(option.path, problem)
            return
        named.setdefault(host, set()).update(int(slot) for slot in found)
    if name == _EXCLUDE and sum(map(len, named.values())) == pool.workers * pool.slots:
        yield error(option.path, "leaves no slot to train on")
    if pool.is_elastic:
        yield warning(option.path, f"deepspeed fails while a worker that {name} names is not there")


def _filter_of(flag: str) -> str:
    """`--include` or `--exclude`, if the word stands for one of them."""
    for name, short, least in ((_INCLUDE, "-i", "--i"), (_EXCLUDE, "-e", "--ex")):
        if flag == short or (flag.startswith(least) and name.startswith(flag)):
            return name
    return ""


def _unknown_slot(host: str, slots: list[str], pool: Pool) -> str:
    """Why there is no such host or slot; empty if there is."""
    match = _NODE.match(host)
    if not match or int(match[1]) >= pool.workers:
        last = f" to {WORKER}-{pool.workers - 1}" if pool.workers > 1 else ""
        return f"there is no host '{host[:63]}'; the workers are called {WORKER}-0{last}"
    for slot in slots:
        if not _SLOT.match(slot) or int(slot) >= pool.slots:
            return f"{host} has no slot '{slot[:20]}'; its slots are 0 to {pool.slots - 1}"
    return ""
