"""A churn of restarting jobs, each of which ends the same way however often it is disturbed.

Every replica counts its starts in the volume and fails a fixed number of times. Where one failure
restarts all, a replica fails only once all others of its attempt have started: what happens is
then a function of the shape alone, down to the number of starts of each replica.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.embedded.command_line import Object, shell
from tests.embedded.lifecycle_yard import generic, pytorch, replicas, template

_START = """\
mkdir -p /data/{job}; cd /data/{job}; echo x >> starts-$ME; n=$(wc -l < starts-$ME)
"""
_ALL_OF_THE_ATTEMPT = """\
for other in {others}; do
    until [ -e starts-$other ] && [ $(wc -l < starts-$other) -ge $n ]; do sleep 0.02; done
done
"""
_FAIL = "case $ME-$n in {failing}) exit {code};; esac\n"
_RANK_0_IS_LAST = """\
touch done-$ME
if [ $ME = 0 ]; then
    for other in {others}; do until [ -e done-$other ]; do sleep 0.02; done; done
fi
{after}
"""


def _script(
    job: str,
    failures: Mapping[int, Sequence[int]],
    *,
    count: int,
    together: bool = False,
    after: str = "exit 0",
) -> str:
    """`failures`: rank to the exit codes of its first runs; after those it does its work."""
    others = " ".join(map(str, range(count)))
    lines = [_START.format(job=job)]
    if together:
        lines.append(_ALL_OF_THE_ATTEMPT.format(others=others))
    for rank, codes in failures.items():
        for number, code in enumerate(codes, 1):
            lines.append(_FAIL.format(failing=f"{rank}-{number}", code=code))
    lines.append(_RANK_0_IS_LAST.format(others=others, after=after))
    return "".join(lines)


def _training(
    name: str,
    failures: Mapping[int, Sequence[int]],
    *,
    policy: str = "OnFailure",
    together: bool = True,
    after: str = "exit 0",
    **run_policy: Any,
) -> Object:
    script = _script(name, failures, count=3, together=together, after=after)
    pods = template(shell(script), env={"ME": "$(RANK)"})
    return pytorch(name, pods, replicas=3, policy=policy, runPolicy=run_policy)


def _set(
    name: str,
    failures: Mapping[int, Sequence[int]],
    *,
    policy: str = "OnFailure",
    limit: int,
    after: str = "exit 0",
    **spec: Any,
) -> Object:
    script = _script(name, failures, count=3, after=after)
    pods = template(shell(script), env={"ME": "$(rank)"})
    return generic(name, replicas("worker", 3, pods, policy=policy, limit=limit), **spec)


FOR_EVER = "exec sleep 3600"
BUT_RANK_0_FOR_EVER = "[ $ME = 0 ] || exec sleep 3600"
SHAPES: Mapping[str, Callable[[str], Object]] = {
    "together": lambda name: _training(name, {1: (3, 3, 3)}, backoffLimit=5),
    "codes": lambda name: _training(name, {2: (137, 143)}, policy="ExitCode"),
    "permanent": lambda name: _training(name, {1: (138, 1)}, policy="ExitCode", after=FOR_EVER),
    "spent": lambda name: _training(name, {0: (7, 7, 7)}, after=FOR_EVER, backoffLimit=2),
    "apart": lambda name: _training(
        name, {1: (3, 4), 2: (5,)}, together=False, backoffLimit=3, restartScope="Replica"
    ),
    "cleaned": lambda name: _training(
        name, {1: (9,)}, after=BUT_RANK_0_FOR_EVER, cleanUpPolicy="Unfinished"
    ),
    "set": lambda name: _set(name, {0: (1,), 1: (2, 2), 2: (3, 3, 3)}, limit=3),
    "rule": lambda name: _set(
        name,
        {1: (8, 8, 8)},
        limit=2,
        after=FOR_EVER,
        failureRules=[{"worker": [1]}],
        cleanUpPolicy="All",
    ),
    "always": lambda name: _set(name, {}, policy="Always", limit=2),
}
"""Shape to a maker of its manifest."""
