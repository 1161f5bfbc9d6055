"""Logs of a job's replicas: what is wanted of them, read once or followed."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace

from trainyard.client.job_lookup import pods_of
from trainyard.client.job_view import Job
from trainyard.client.object_watcher import follow, watch_pods
from trainyard.client.pod_views import PodView, in_order
from trainyard.kube.client import Client, LogOptions
from trainyard.kube.errors import KubeError, NotFound, StreamError
from trainyard.podruntime.log_reader import MISSING
from trainyard.schema.dataclass import dataclass

LONGEST_LINE = 1 << 20
"""Bytes; where longer lines are cut."""
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|[+-]\d\d:\d\d)")
_TIME_OF_LINE = re.compile(rb"^" + _TIME.pattern + rb" ", re.MULTILINE)
_TIME_BYTES = 40
_RETRY_SECONDS = 0.2
_TRIES = 10
_DRAIN_SECONDS = 5.0
_STALLED_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class LogRequest(LogOptions):
    """What is wanted of the logs."""

    replica: str = ""
    container: str = ""
    rank: int | None = None
    """Only what this rank of the job wrote."""


class Lines:
    """Cuts bytes into whole lines, so that those of several replicas never mix.

    A line of more than `LONGEST_LINE` bytes is cut there, or before the last carriage return until
    there, since one may have no end at all.
    """

    def __init__(self) -> None:
        self.unfinished = bytearray()
        """The line that is not whole yet; not to be changed."""

    def feed(self, chunk: bytes) -> bytes:
        """The lines that are whole by now, with their ends."""
        if b"\n" not in chunk and len(self.unfinished) + len(chunk) <= LONGEST_LINE:
            self.unfinished += chunk  # progress grows in small steps: no copies
            return b""
        data = bytes(self.unfinished) + chunk
        if len(data) > LONGEST_LINE:
            data = b"\n".join(piece for line in data.split(b"\n") for piece in _pieces(line))
        whole, newline, rest = data.rpartition(b"\n")
        self.unfinished = bytearray(rest)
        return whole + newline

    def end(self) -> bytes:
        """The log is over; an unfinished last line is finished."""
        rest, self.unfinished = bytes(self.unfinished), bytearray()
        return rest + b"\n" if rest else b""


def _pieces(line: bytes) -> list[bytes]:
    pieces, start = [], 0
    while len(line) - start > LONGEST_LINE:
        end = start + LONGEST_LINE
        overwritten = line.rfind(b"\r", start + 1, end)
        end = end if overwritten < 0 else overwritten
        pieces.append(line[start:end])
        start = end
    return [*pieces, line[start:]]


class Stamped:
    """Follows a log with times through several streams: each line once, told without its time.

    A later stream is asked to begin at `since`. What it repeats of the lines of that time, or of
    earlier ones (servers round it down), is left out; if it repeats none of them, the log was
    rotated in between, and a line says so.
    """

    def __init__(self, *, keeps_times: bool) -> None:
        self._keeps_times = keeps_times
        self.since = ""
        """The time of the last line that was told; empty before the first."""
        self.passed = 0
        """How many lines were told."""
        self._count = 0
        self._lines = Lines()
        self._stamp = b""
        self._is_catching_up = False
        self._repeated = 0

    def begin_again(self) -> None:
        """Another stream begins; what the last one left unfinished comes again."""
        self._lines = Lines()
        self._is_catching_up = bool(self.since)
        self._repeated = 0

    def feed(self, chunk: bytes) -> bytes:
        """The lines that are whole by now and new."""
        block = self._lines.feed(chunk)
        if not self._is_catching_up and MISSING.encode() not in block:
            texts, count = _TIME_OF_LINE.subn(b"", block)
            if count and count == block.count(b"\n"):
                self._note(block, count)
                return block if self._keeps_times else texts
        lines = block.split(b"\n")[:-1]
        return b"".join(text + b"\n" for line in lines for text in self._new(line))

    def _note(self, block: bytes, lines: int) -> None:
        """Lines that are told as they are: where the log can be taken up after them."""
        start = block.rfind(b"\n", 0, -1) + 1
        self._stamp = block[start : block.index(b" ", start)]
        last, begun = self._stamp.decode(), self._stamp + b" "
        same = block.count(b"\n" + begun) + block.startswith(begun)
        is_same = same == lines and last == self.since
        self.passed += lines
        self.since, self._count = last, self._count + same if is_same else same

    def unfinished(self, start: int) -> bytes:
        """The line that is not whole yet from its byte `start` on; negative: its last bytes.

        Empty where it may be one that was told already.
        """
        line = self._lines.unfinished
        stamp = _TIME_OF_LINE.match(line)
        if stamp is None and len(line) < _TIME_BYTES:
            return b""  # perhaps half a time
        if self._is_catching_up:
            at = self._stamp if stamp is None else stamp[0][:-1]
            last = self.since.encode()
            if at < last or (at == last and self._repeated < self._count):
                return b""
        text = 0 if stamp is None or self._keeps_times else stamp.end()
        begin = text + start if start >= 0 else max(text, len(line) + start)
        return bytes(line[begin:])

    def end(self) -> bytes:
        """There is no further stream; an unfinished last line is finished."""
        lines = self._lines.end().split(b"\n")[:-1]
        began = [line for line in lines if b" " in line or len(line) > _TIME_BYTES]
        return b"".join(text + b"\n" for line in began for text in self._new(line))

    def _new(self, line: bytes) -> list[bytes]:
        """What to tell of a line, or of a piece of a long one."""
        stamp, _, text = line.partition(b" ")
        if _TIME.fullmatch(stamp):
            self._stamp = stamp
            text = line if self._keeps_times else text
        else:  # a further piece
            stamp, text = self._stamp, line
        chunks = [text]
        if self._is_catching_up:
            last = self.since.encode()
            if stamp < last:
                return []
            if stamp == last and self._repeated < self._count:
                self._repeated += 1
                return []
            self._is_catching_up = False
            if not self._repeated:
                chunks = [MISSING.encode(), text]
        if not text.endswith(MISSING.encode()):  # which is in no log, and not repeated
            is_same = stamp == self.since.encode()
            self.passed += 1
            self.since, self._count = stamp.decode(), self._count + 1 if is_same else 1
        return chunks


def lines_of_rank(lines: bytes, rank: int) -> bytes:
    """Those of whole lines, with times or without, that are tagged by a rank.

    The tag is that of `payloads.rank_output`; pdsh puts its host before it.
    """
    tagged = rb"^(?:\d{4}-\d\d-\d\dT\S+ )?(?:[\w.-]+: )?\[rank%d\]:.*\n" % rank
    return b"".join(re.findall(tagged, lines, re.MULTILINE))


async def whole_lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """The same bytes cut into whole lines."""
    lines = Lines()
    async for chunk in chunks:
        if whole := lines.feed(chunk):
            yield whole
    if rest := lines.end():
        yield rest


def texts(lines: bytes) -> list[str]:
    """Whole lines as a terminal would show them: what a carriage return overwrote is gone."""
    if b"\r" not in lines:
        return lines.decode(errors="replace").split("\n")[:-1]
    return [text_at_last(line) for line in lines.split(b"\n")[:-1]]


def text_at_last(line: bytes) -> str:
    """What a terminal shows of one line, whole or not."""
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="replace")


def shown_container(job: Job, pod: PodView, request: LogRequest) -> str:
    """The container that is meant: of a pod that never got so far, the init container at fault."""
    return request.container or pod.failed_init_container or job.training_container(pod)


async def read(
    client: Client, pod: PodView, container: str, request: LogRequest
) -> AsyncGenerator[bytes]:
    """One container's log to its end, whole lines at a time."""
    async with contextlib.aclosing(
        client.logs(pod.name, pod.namespace, container, request)
    ) as chunks:
        async for lines in whole_lines(chunks):
            yield lines


Deliver = Callable[[PodView, str, bytes], None]
"""Takes whole lines of a pod's container."""
Unfinished = Callable[[int], bytes]
"""A line that is not whole yet, from a byte of it on; negative: its last bytes."""
Grow = Callable[[PodView, str, Unfinished], None]
"""Takes the line that a pod's container is still writing, each time that there is more of it."""
Kept = Callable[[PodView, str, LogRequest], AsyncGenerator[bytes]]
"""Reads what is kept of a deleted pod's container, times and all; NotFound if nothing is."""
GONE = "[trainyard: output is missing here: its pod was deleted before it was read]"
"""Stands for the end of a log that broke off, and could not be taken up."""


class LogFollower:
    """Streams the logs of containers to their ends, each once; broken streams are taken up."""

    def __init__(
        self,
        client: Client,
        request: LogRequest,
        deliver: Deliver,
        fail: Callable[[KubeError], None],
        kept: Kept | None = None,
        grow: Grow | None = None,
    ) -> None:
        """`fail` is told why a log cannot be read; that of a deleted pod is in `kept`, or over.

        `deliver` is given a line when it is whole, also if `grow` has seen it before.
        """
        self._client = client
        self._kept = kept or _nothing_kept
        self._request = request
        self._deliver = deliver
        self._grow = grow
        self._fail = fail
        self._streams: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._pods: dict[str, PodView] = {}
        self._gone: set[str] = set()
        self._passed = 0

    def begin(self, group: asyncio.TaskGroup, pod: PodView, containers: Iterable[str]) -> None:
        """Stream those of a pod's containers that have started by now; note how it is."""
        self._pods[pod.uid] = pod
        for name in containers:
            key = (pod.uid, name)
            if key not in self._streams and pod.has_started(name):
                self._streams[key] = group.create_task(self._stream(pod, name))

    def gone(self, pod: PodView) -> None:
        """A pod was deleted: nothing more is written to its logs."""
        self._gone.add(pod.uid)

    async def drain(self, seconds: float) -> None:
        """Let the logs reach their end: containers may have written more than was read.

        A container that goes on is given so long; the log of one that has ended takes as long as it
        takes, while lines come.
        """
        if self._streams:
            await asyncio.wait(self._streams.values(), timeout=seconds)
        before = -1
        while (left := self._streams_of_ended()) and self._passed > before:
            before = self._passed
            await asyncio.wait(left, timeout=_STALLED_SECONDS)
        self.stop()

    def _streams_of_ended(self) -> list[asyncio.Task[None]]:
        """Those that are not read to the end, although nothing more is written."""
        return [
            stream
            for (uid, name), stream in self._streams.items()
            if not stream.done() and (uid in self._gone or self._pods[uid].has_ended(name))
        ]

    def stop(self) -> None:
        """Read no further."""
        for stream in self._streams.values():
            stream.cancel()

    async def _stream(self, pod: PodView, container: str) -> None:
        log, failures = Stamped(keeps_times=self._request.timestamps), 0
        wanted = replace(self._request, timestamps=True)
        while True:
            before = log.passed
            try:
                await self._read(pod, container, wanted, log)
                break
            except NotFound:  # the pod was deleted
                await self._read_rest(pod, container, wanted, log, is_broken=failures > 0)
                break
            except KubeError as error:
                failures = 1 if log.passed > before else failures + 1
                if failures == _TRIES:
                    if not isinstance(error, StreamError):
                        self._fail(error)
                    break
                if log.since:
                    wanted = replace(wanted, tail=None, since_seconds=None, since_time=log.since)
                await asyncio.sleep(_RETRY_SECONDS)
        if lines := log.end():
            self._deliver(pod, container, lines)

    async def _read(self, pod: PodView, container: str, wanted: LogRequest, log: Stamped) -> None:
        """One stream to its end."""
        await self._take(
            self._client.logs(pod.name, pod.namespace, container, wanted), pod, container, log
        )

    async def _read_rest(
        self, pod: PodView, container: str, wanted: LogRequest, log: Stamped, *, is_broken: bool
    ) -> None:
        """What the server does not tell any more; one that takes it slowly is cut off at times."""
        try:
            await self._take(self._kept(pod, container, wanted), pod, container, log)
        except NotFound:
            if is_broken:
                self._deliver(pod, container, log.end() + GONE.encode() + b"\n")

    async def _take(
        self, chunks: AsyncGenerator[bytes], pod: PodView, container: str, log: Stamped
    ) -> None:
        async with contextlib.aclosing(chunks) as stream:
            is_begun = False
            async for chunk in stream:
                if not is_begun:  # until then what the last stream left is all there is
                    log.begin_again()
                    is_begun = True
                self._passed += 1
                if lines := log.feed(chunk):
                    self._deliver(pod, container, lines)
                if self._grow is not None and log.unfinished(-1):
                    self._grow(pod, container, log.unfinished)


async def _nothing_kept(_: PodView, container: str, __: LogRequest) -> AsyncGenerator[bytes]:
    raise NotFound(f"nothing is kept of {container}")
    yield b""  # makes it a generator


async def follow_logs(client: Client, job: Job, request: LogRequest, logs: LogFollower) -> None:
    """The logs of every pod of a job, also those to come, until it is over and all is told."""

    def begin(group: asyncio.TaskGroup, pods: Sequence[PodView]) -> None:
        for pod in in_order(pods):
            if request.replica in ("", pod.name, job.replica_of(pod.name)):
                logs.begin(group, pod, [request.container or job.training_container(pod)])

    async def begin_all(group: asyncio.TaskGroup) -> None:
        async with contextlib.aclosing(watch_pods(client, job)) as states:
            async for state in states:
                begin(group, [PodView(pod) for pod in state.changed])
                for pod in state.gone:
                    logs.gone(PodView(pod))

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(begin_all(group))
        try:
            await _until_over(client, job)
            # Pods that ended with the job may be known to the job before they are to us.
            begin(group, await pods_of(client, job))
            # A replica that goes on after the job has ended is not waited for.
            await logs.drain(_DRAIN_SECONDS)
        finally:
            watching.cancel()


async def _until_over(client: Client, job: Job) -> None:
    async with contextlib.aclosing(follow(client, job)) as states:
        async for state in states:
            if state is None or state.is_over:
                return
