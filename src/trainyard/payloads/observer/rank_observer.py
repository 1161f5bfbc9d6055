"""The observer inside a rank: a thread that samples it each second, and reports to the controller.

It must print nothing, change no exit code, hold no lock across a fork, and end before the
interpreter does. A process is a rank once torch has a default process group in it, or once it has a
RANK and waits for the other ranks to form one, or works without them. No other process reports.
Runs in the user's image: standard library, Python 3.8.
"""

from __future__ import annotations

import atexit
import faulthandler
import functools
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Callable  # noqa: UP035 (Python 3.8)

from trainyard.payloads import report_client
from trainyard.payloads.observer import (
    collective_timing,
    flight_recorders,
    printed_progress,
    process_sampling,
    rank_state,
    ranks_met,
    stack_server,
)

if TYPE_CHECKING:
    from trainyard.payloads.observer.tensorboard_events import EventFiles
    from trainyard.payloads.payload_messages import Observation

VARIABLE = "TRAINYARD_OBSERVE"
"""``attempt=2,after=300,files=/t9k/channel,url=https://…``: which pod of the replica this is, after
how many seconds a hang counts, and the channel to the controller. ``message=PATH`` is where the
container has its termination message, if not in the usual file; ``kept=1``: a program of ours
outlives the rank, and keeps in order what a crash leaves there (`crash_stack`)."""
EVENTS = "TRAINYARD_EVENTS"
"""Folders in which there will be files for TensorBoard, as in a PATH."""
MOST_SECONDS_BETWEEN, FEWEST_SECONDS_BETWEEN = 30.0, 2.0
LEAST_WINDOW_SECONDS = 4.0
FRESH, RANKS_PER_SECOND = 4, 20
"""After so many new collectives a rank reports sooner, though no more of all ranks in a second."""
FORK_SECONDS, EXIT_SECONDS = 0.2, 1.0
"""How long a fork, and the end of the process, wait for the thread."""
MEMORY_SECONDS, MOST_MEMORY = 20.0, 6
"""How often a rank notes how much memory it has, and how many of these it reports."""
LONGEST_MODULES = 3000
"""Characters of a list of extension modules that leave a kubelet's 4 KiB room for the stack."""
LEFT = "Left"
"""Reported once, by a rank that has destroyed its process group or ends."""
APART, ALONE = "Apart", "Alone"
"""Reported by a process that was to be rank 0 of several: it works without the others; it ends, and
never met one."""
TRAINING_LOOKS = 2
"""Once it was found to train so often, it will not join others any more."""


class Settings:
    """What the pod's variable says."""

    def __init__(self, text: str) -> None:
        given = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        self.attempt = int(given.get("attempt") or 1)
        self.url, self.files = given.get("url", ""), given.get("files", "")
        self.is_crash_kept = bool(given.get("kept"))
        after = float(given.get("after") or 300)
        self.every = min(MOST_SECONDS_BETWEEN, max(FEWEST_SECONDS_BETWEEN, after / 5))
        """Seconds between two reports of a rank of which there is nothing new."""
        self.window = min(rank_state.WINDOW_SECONDS, max(LEAST_WINDOW_SECONDS, after))
        self.period = self.window / rank_state.WINDOW_SECONDS
        """Seconds between two looks."""


class Observer:
    """Samples this process. Reports what is new without delay, and everything from time to time."""

    def __init__(
        self,
        settings: Settings,
        client: report_client.ReportClient,
        folders: str = "",
        crashes: int = -1,
    ) -> None:
        """`folders`: those with files for TensorBoard. `crashes`: the descriptor of the container's
        termination message, where a crash is to write its stack there."""
        self.settings, self.client = settings, client
        self.sampler = process_sampling.ProcessSampler()
        self.stack_server = stack_server.StackServer()
        self.activity = rank_state.Activity(settings.window)
        self.timings = collective_timing.CollectiveTimings()
        self.device_collectives = flight_recorders.DeviceCollectives()
        self.counts: rank_state.Counts = ()
        self.frames: tuple[rank_state.Frame, ...] = ()
        self.reported_kind = ""
        """The kind in the last report; "" before the first."""
        self.reported_at = 0.0
        self.memory: list[tuple[float, int]] = []
        """When it had how many MiB, the newest first."""
        self.rank = self.size = -1
        self.training_looks = 0
        self.library = ""
        """That by which it is alone."""
        self.crashes = -1 if settings.is_crash_kept else crashes
        self.events = StatusSource(_events(folders)) if folders else None
        self.printed = printed_progress.PrintedProgress()
        self.output = StatusSource(self.printed)

    def tick(self, at: float) -> None:
        """One turn of the thread, at a time of the monotonic clock."""
        self.observe_once(at)
        self.stack_server.answer_waiting(self.rank, self.activity.kind)
        if self.is_first():
            self.printed.is_training = self.training_looks > 0 or bool(self.counts)
            for source in filter(None, (self.events, self.output)):
                source.report_if_due(at, self.client)

    def is_first(self) -> bool:
        """Whether this is rank 0; of processes without a group, not one that another started."""
        if self.rank >= 0:
            return self.rank == 0
        rank = os.environ.get("RANK", os.environ.get(rank_state.OWN_RANK))
        return rank == "0" and not was_started_by_another()

    def observe_once(self, at: float) -> None:
        """Look, and report; torch's module is there by now, the process group may never be."""
        group = process_sampling.default_group()
        known = flight_recorders.counts() if group is not None else ()
        if not known and ranks_met.accelerate_is_alone():
            group = None
        if group is not None:
            self.rank, self.size = group.rank(), group.size()
        elif self.reported_kind not in ("", rank_state.MEETING, APART):
            self.report_if_due(at, LEFT)
            return
        elif "RANK" not in os.environ:
            if self.is_first():
                self.look_for_training(at, ())
            return
        if known != self.counts:
            self.counts = known
            self.activity.note_collective(at)
            self.timings.read_new(at, self.pace(), self.rank == 0)
        else:
            sample = self.look_for_training(at, known)
            self.frames = sample.frames
            self.activity.add_sample(sample)
        if self.works_alone(is_certain=self.training_looks >= TRAINING_LOOKS):
            self.report_if_due(at, APART)
        elif (
            group is not None
            or self.reported_kind == rank_state.MEETING
            or self.activity.kind == rank_state.MEETING
        ):
            self.report_if_due(at, self.activity.kind)

    def look_for_training(self, at: float, known: rank_state.Counts) -> rank_state.Sample:
        """A sample, which counts as one of a training where it shows that."""
        is_pending = self.device_collectives.is_pending(known, at)
        sample = self.sampler.sample(at, known, is_pending)
        is_training = self.sampler.has_updated or ranks_met.is_training(sample.frames)
        self.training_looks += is_training
        return sample

    def works_alone(self, *, is_certain: bool) -> bool:
        """Whether it was started as the first of several ranks, and has none of the others: of
        thousands one is enough to say so. `is_certain`: see `ranks_met.library_alone`."""
        size = os.environ.get("WORLD_SIZE", "")
        is_one_of_many = size.isdigit() and int(size) > 1 and self.rank < 0 and self.is_first()
        self.library = ranks_met.library_alone(is_certain=is_certain) if is_one_of_many else ""
        return bool(self.library)

    def pace(self) -> float:
        """Seconds between two reports of a rank that goes from collective to collective."""
        soon = max(FEWEST_SECONDS_BETWEEN, self.size / RANKS_PER_SECOND)
        return min(self.settings.every, soon)

    def report_if_due(self, at: float, kind: str) -> None:
        """Send a report if it is time for one."""
        every = self.pace() if self.timings.new_count >= FRESH else self.settings.every
        if kind in (rank_state.NEW, self.reported_kind) and at - self.reported_at < every:
            return
        if kind == LEFT == self.reported_kind:
            return
        self.keep_crash_in_reach()
        if self.client.send({"observation": self.observation(at, kind)}):
            self.reported_kind, self.reported_at = kind, at

    def memory_report(self, at: float) -> list[list[float]]:
        """What it has now, and what it had."""
        now = at, process_sampling.resident_mebibytes()
        report = [now, *self.memory][:MOST_MEMORY]
        if not self.memory or at - self.memory[0][0] >= MEMORY_SECONDS:
            self.memory = report
        return [[round(at - then, 1), amount] for then, amount in report]

    def leave_without_word(self) -> None:
        """`os._exit` ends the process: where it was called is all that will be known."""
        has_group = process_sampling.default_group() is not None
        if self.reported_kind not in ("", APART) or (has_group and not was_started_by_another()):
            self.frames = self.sampler.frames()[0]
            self.report_if_due(time.monotonic(), LEFT)

    def keep_crash_in_reach(self) -> None:
        """Where the list of extension modules that Python puts below a crash's stack has become too
        long for a termination message, the crash goes to the log, as Python's own way is."""
        if self.crashes < 0 or extension_modules_length() <= LONGEST_MODULES:
            return
        self.crashes = -1
        faulthandler.enable(2, all_threads=False)

    def observation(self, at: float, kind: str) -> Observation:
        """The report on this rank."""
        if kind == rank_state.COLLECTING:
            self.frames = self.sampler.frames()[0]
        is_stuck = kind in rank_state.STUCK
        line = next((each for each in self.frames if self.sampler.is_user_file(each[0])), None)
        machine, now, arrived = self.timings.report()
        return {
            "attempt": self.settings.attempt,
            "rank": self.rank if self.rank >= 0 else int(os.environ.get("RANK") or 0),
            "size": self.size if self.size >= 0 else int(os.environ.get("WORLD_SIZE") or 0),
            "pid": os.getpid(),
            "kind": kind,
            "seconds": round(max(at - self.activity.since, 0.0), 1) if self.activity.since else 0.0,
            "every": self.settings.every,
            "line": list(line) if line else [],
            "frames": [list(each) for each in self.frames],
            "waitsFor": self.sampler.waits_for() if is_stuck else "",
            "counts": [list(each) for each in self.counts],
            "ring": flight_recorders.last_collectives() if is_stuck and self.counts else [],
            "machine": machine,
            "now": now,
            "arrivals": arrived,
            "cadence": self.timings.cadence,
            "memory": self.memory_report(at),
            "library": self.library,
            "unobserved": flight_recorders.unobserved(os.environ),
        }


class StatusSource:
    """Something that progress is read from, and what of it is told."""

    def __init__(self, reader: EventFiles | printed_progress.PrintedProgress) -> None:
        self._reader = reader
        self._is_sent, self._read_at = True, 0.0

    def report_if_due(self, at: float, client: report_client.ReportClient) -> None:
        """Read on if it is time for that, and send what is new."""
        if not self._reader.is_due(at - self._read_at):
            return
        self._read_at = at
        self._is_sent = not self._reader.read_new() and self._is_sent
        self._is_sent = self._is_sent or client.send({"trainerStatus": self._reader.status()})


def was_started_by_another() -> bool:
    """Whether this is a child of a rank, by `multiprocessing`."""
    module = sys.modules.get("multiprocessing.process")
    return getattr(module, "_parent_process", None) is not None


def extension_modules_length() -> int:
    """Characters of the list of extension modules below a crash's stack."""
    own = getattr(sys, "stdlib_module_names", ())  # of Python 3.10, which began with the list
    return sum(
        len(name) + 2
        for name, module in list(sys.modules.items())
        if own and name not in own and _is_extension(module)
    )


def _is_extension(module: Any) -> bool:
    path = getattr(module, "__file__", None)
    return isinstance(path, str) and path.endswith(".so")


def _events(folders: str) -> EventFiles:
    """Of these folders; few ranks have any, and all would compile that program."""
    from trainyard.payloads.observer.tensorboard_events import EventFiles

    return EventFiles(folders.split(":"), time.time())


class ObserverThread:
    """The observer's thread. It is stopped around forks, and before the interpreter ends."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.pid = os.getpid()
        self.stop = threading.Event()
        self.thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread."""
        self.stop = threading.Event()
        self.thread = threading.Thread(
            target=self.run, args=(self.stop,), name="trainyard-observer", daemon=True
        )
        self.thread.start()

    def end(self, seconds: float) -> None:
        """Let the thread end, and wait for that."""
        self.stop.set()
        if self.thread is None:
            return
        until = time.monotonic() + seconds
        self.thread.join(seconds)
        # Python tells its end before the kernel does, and from 3.12 on warns of a fork in between.
        while os.path.exists(f"/proc/self/task/{self.thread.native_id}"):
            if time.monotonic() >= until:
                return
            time.sleep(0.0002)

    def run(self, stop: threading.Event) -> None:
        """The thread's function; an error in it ends the thread and is not shown."""
        try:
            # The program's signals are for its main thread, whose system call they interrupt.
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            while not stop.wait(self.observer.settings.period):
                self.observer.tick(time.monotonic())
        except Exception:
            return

    def leave(self) -> None:
        """The interpreter ends: a daemon thread that it meets then would crash it."""
        if os.getpid() != self.pid:
            return
        self.end(EXIT_SECONDS)
        observer = self.observer
        if self.thread is None or self.thread.is_alive():
            return
        if observer.is_first():
            observer.output.report_if_due(float("inf"), observer.client)
        if observer.reported_kind not in ("", APART):
            observer.report_if_due(time.monotonic(), LEFT)
        elif not observer.reported_kind and observer.works_alone(is_certain=True):
            observer.report_if_due(time.monotonic(), ALONE)


def report_exits(thread: ObserverThread) -> None:
    """Have `os._exit` with an error code report where it was called, in the rank itself."""
    end: Any = os._exit

    def report_and_exit(status: Any) -> None:
        try:
            if status and os.getpid() == thread.pid:
                thread.end(EXIT_SECONDS)
                if thread.thread is not None and not thread.thread.is_alive():
                    thread.observer.leave_without_word()
        except Exception:
            return
        finally:
            end(status)

    os._exit = report_and_exit  # type: ignore[assignment]


def start_observing(variables: Any = os.environ, crashes: int = -1) -> None:
    """Begin to observe this process; called once, by its main thread, which has one of
    `sitecustomize_hook.LIBRARIES`.

    Raises KeyError where the pod is not to be observed.
    """
    settings = Settings(variables[VARIABLE])
    flight_recorders.turn_on(os.environ)
    client = report_client.ReportClient(settings.url, settings.files)
    observer = Observer(settings, client, variables.get(EVENTS, ""), crashes)
    observer.printed.listen()
    thread = ObserverThread(observer)
    thread.begin()
    atexit.register(thread.leave)
    report_exits(thread)
    end = functools.partial(thread.end, FORK_SECONDS)
    os.register_at_fork(before=end, after_in_parent=_after_fork(thread.begin))


def _after_fork(begin: Callable[[], None]) -> Callable[[], object]:
    """What begins again in the parent. Python 3.13 warns of forks beside threads once it has called
    this, and would of ours: there it has to be C, and what it puts off is done right after."""
    if sys.version_info < (3, 13):
        return begin
    try:
        import ctypes
    except ImportError:
        return begin

    def begins(_: object) -> int:
        begin()
        return 0

    function = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(begins)
    return functools.partial(ctypes.pythonapi.Py_AddPendingCall, function, None)
