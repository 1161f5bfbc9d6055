"""Reads launchers' reports of a failure: which rank they blame, and which lines are theirs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainyard.schema.dataclass import dataclass

_ROOT = "Root Cause (first observed failure):"
_FIELD = re.compile(r"(rank|host|exitcode) *: (-?[\w.-]+)")
_FIELDS = 8
_QUOTED_LINES = 6
_LAUNCH = re.compile(r"trainyard: (?:rank (\d+)|the launch) on (\S+) failed with exit code (\d+)")
"""As `payloads.launch.launch_runner` says it of the first failure."""
_LOST = re.compile(r"trainyard: (\S+) was lost: ")
_REPLICA = re.compile(r"[a-z][\w-]*-\d+")
"""The name of a host that is launched over ssh; without namespaces it is the machine's."""
_PROCESSES = re.compile(r"  rank +: \d+ \(local_rank: (\d{1,6})\)|num_local_procs=(\d{1,6})\b")
"""In a report of torchrun's, which has all ranks of its replica, and in deepspeed's log."""
_SIGTERM = -15
_NOISE = re.compile(
    r"[WEI]\d{4} [\d:.]+ .*torch/distributed/"  # torchrun's own
    r"|\[[WEI]\d{4} [\d:.]+ \S+\.(?:cpp|hpp|cc)\b|Exception raised from \S+ at "
    r"|frame #\d+: |<omitting "
    r"|\[\d{4}-\d\d-\d\d [\d:,]+\] \[[A-Z]+\] \["  # deepspeed's
    r"|pdsh@|trainyard: (?!(?:\S+: )?cannot )|[=*-]{5,}"
    r"|Set the environment variable HYDRA_FULL_ERROR"
    r"|Error: failed to run torchrun|Command: 'cd |Exit code: |Std(?:out|err): already printed"
    r"|\S+: (?:failure|finish|success)$|\S+ FAILED$|Failures:$|Root Cause|\[\d+\]:$"
    r"|Terminated$"  # a shell's, of what it had started
    r"|<NO_OTHER_FAILURES>|(?:time|host|rank|exitcode|error_file|traceback) *: "
)
_BOX = re.compile(r"[╭╰┌└+][─━-].*|[│┃] *(.*?) *[│┃]")
"""What rich and typer draw around their words."""
_TAG = re.compile(r"(?:[a-z][\w-]*-\d+: )?\[rank(\d{1,6})\]:")
_AROUND = re.compile(r"^(?:[a-z][\w-]*-\d+: )?(?:\[rank\d+\]: )?")
"""pdsh puts the replica before a line, and a launch of several ranks the rank."""


@dataclass(frozen=True, slots=True)
class BlamedRank:
    """The rank that a launcher says failed first."""

    host: str = ""
    """As the launcher calls it: a replica, or a host name that begins with its pod's."""
    rank: int | None = None
    code: int = 1
    """Negative for a signal, as torchrun has it."""


def find_blamed_rank(lines: Sequence[str]) -> BlamedRank | None:
    """Who is blamed in a log; None where no launcher says so, or only blames the launch's end."""
    for line in reversed(lines):
        if found := _LAUNCH.search(line):
            rank = int(found[1]) if found[1] else None
            named = BlamedRank(found[2], rank, int(found[3]))
            return named if rank is not None else _by_torchrun(lines, named)
        if lost := _LOST.search(line):
            return BlamedRank(lost[1])
    return _by_torchrun(lines, None)


def _by_torchrun(lines: Sequence[str], named: BlamedRank | None) -> BlamedRank | None:
    """The first report of an agent whose ranks were not ended by somebody else."""
    for number, line in enumerate(lines):
        if not line.rstrip().endswith(_ROOT):
            continue
        found = (_FIELD.search(each) for each in lines[number + 1 : number + 1 + _FIELDS])
        fields = {each[1]: each[2] for each in found if each}
        code = _number(fields.get("exitcode", ""))
        if code != _SIGTERM and not _is_other_replica(fields.get("host", ""), named):
            rank = _number(fields.get("rank", ""))
            return BlamedRank(fields.get("host", ""), rank, 1 if code is None else code)
    return named


def _is_other_replica(host: str, named: BlamedRank | None) -> bool:
    """Whether a report is of another replica than that whose launch failed first."""
    short = host.partition(".")[0]
    return named is not None and short != named.host and _REPLICA.fullmatch(short) is not None


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else None


def count_processes(lines: Sequence[str]) -> int:
    """How many processes each replica had, as far as its launcher tells; 1 where it does not."""
    found = (_PROCESSES.search(line) for line in lines)
    return max((int(each[1]) + 1 if each[1] else int(each[2]) for each in found if each), default=1)


def own_lines(lines: Sequence[str], most: int = _QUOTED_LINES) -> tuple[str, ...]:
    """The last lines that no launcher wrote, oldest first."""
    found: list[str] = []
    for line in reversed(lines):
        text = _bare_text(line)
        if text and not _NOISE.match(text.lstrip()) and text.lstrip()[0] not in "^~":
            found.append(text)
        if len(found) == most:
            break
    return tuple(reversed(found))


def without_other_ranks(lines: Sequence[str], blamed: BlamedRank | None) -> Sequence[str]:
    """The lines without those that are tagged by another rank than the one to blame."""
    if blamed is None or blamed.rank is None:
        return lines
    tags = ((line, _TAG.match(line)) for line in lines)
    return [line for line, tag in tags if tag is None or int(tag[1]) == blamed.rank]


def count_lines(lines: Sequence[str], text: str) -> int:
    """In how many lines a program said just this."""
    return sum(_bare_text(line) == text for line in lines)


def _bare_text(line: str) -> str:
    """A line without what was put around it; empty if there is nothing in it."""
    text = _AROUND.sub("", line).rstrip()
    found = _BOX.fullmatch(text)
    return text if found is None else found[1] or ""
