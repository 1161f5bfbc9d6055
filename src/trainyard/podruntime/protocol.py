"""What the agent and the shim say to each other: every request, answer and event, as a type.

On the wire a message is a JSON object with its fields in camelCase and its type under ``op`` (a
request, which also has a number, ``id``), ``id`` alone (the answer to that request) or ``event``.
Named tuples rather than dataclasses: the shim starts before anything else, and a frozen dataclass
takes seven times as long to define. Their annotations are types: the library compiles texts.
"""

import functools
import json
import types
import typing
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

VERSION = 7
"""Of this protocol: an agent that finds the shim of another trainyard must not speak to it."""

Raw = dict[str, Any]
Kind = TypeVar("Kind")


class ProtocolError(ValueError):
    """A message that does not say what it has to; the text names the field."""


class Bind(NamedTuple):
    """A path of the host that is mounted into the pod; no link on it is followed."""

    target: str
    source: str
    read_only: bool = False
    inner: str = ""
    """A path in ``source`` to mount instead, made as a folder where it is missing."""
    private: bool = False
    """It lies in a hidden folder, to which no pod has access otherwise."""


class Account(NamedTuple):
    """A user with their groups."""

    user: int
    group: int
    groups: tuple[int, ...]


class Root(NamedTuple):
    """What a container sees as its file system, over the host's."""

    binds: tuple[Bind, ...] = ()
    devices: tuple[str, ...] = ()
    read_only: bool = False
    privileged: bool = False
    work: str = ""
    size: int = 0
    """How many bytes it may write into the layer; 0: half of the memory."""
    hidden: tuple[str, ...] = ()
    """Folders of the host that are covered wherever they would be seen, beside the shim's own."""
    account: Account | None = None
    """With whose rights the host's paths are reached, and folders in volumes made; None: ours."""


class Program(NamedTuple):
    """A program, and as whom it runs; capabilities are bit masks. ``gpus`` are for the record."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    user: int | None = None
    group: int | None = None
    groups: tuple[int, ...] = ()
    capabilities: int = 0
    dropped: int = 0
    no_new_privileges: bool = False
    privileged: bool = False
    cgroups: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()
    processes: int = 0
    """How many it may have where no control group counts them; 0: no limit."""
    unconfined: bool = False
    """Without a filter of system calls."""


class Forward(NamedTuple):
    """Connections to ``address:port`` go to one of ``endpoints``, in turn; or datagrams."""

    address: str
    port: int
    endpoints: tuple[tuple[str, int], ...]
    protocol: Literal["TCP", "UDP"] = "TCP"


class AddPod(NamedTuple):
    """Make a pod's network, host name and IPC; the answer tells its ``address``."""

    pod: str
    hostname: str
    address: str = ""
    """Wanted where pods are plain processes."""


class AddTmpfs(NamedTuple):
    """Put a tmpfs of at most ``size`` bytes (0: no limit) on ``path``, for this pod alone."""

    pod: str
    path: str
    size: int


class Start(NamedTuple):
    """Start a container; how it goes on is told by events. No ``root``: plain processes."""

    pod: str
    name: str
    attempt: int
    log: str
    program: Program
    root: Root | None = None
    log_bytes: int = 10 << 20
    log_files: int = 5
    """How the log rotates: see ``logfile.LogLimits``."""
    stdin: Literal["", "once", "open"] = ""
    """Whether there is one to attach to, and whether it ends with the first who does."""
    tty: bool = False
    beside: str = ""
    """The container whose process namespace it is born in, instead of one of its own."""


class Attach(NamedTuple):
    """Show what a container writes from now on in a pipe, whose end to write to is attached.

    It is closed when the container's output has ended. To the answer is attached, if there is one,
    the end to write to its input: with a terminal that is the terminal's controlling end, else a
    pipe, which is given away for good where the container's input is to end with the first who has
    attached (``Start.stdin`` is ``once``).
    """

    pod: str
    name: str
    stdin: bool = False


class Exec(NamedTuple):
    """Run a command in a container; its end is a ``SessionEnded``. Attached are its stdin, stdout
    and stderr, or with ``tty`` a socket that receives the terminal's controlling end."""

    pod: str
    name: str
    session: str
    argv: tuple[str, ...]
    tty: bool


class EndSession(NamedTuple):
    """Kill a command started by ``Exec``."""

    session: str


class Signal(NamedTuple):
    """Send a signal to a container's program."""

    pod: str
    name: str
    number: int


class Kill(NamedTuple):
    """SIGKILL one container, or all of the pod, with everything in it."""

    pod: str
    name: str = ""


class RemovePod(NamedTuple):
    """Forget a pod, give its namespaces and its address back."""

    pod: str


class OpenSocket(NamedTuple):
    """A TCP socket inside the pod's network, attached to the answer."""

    pod: str


class OpenListener(NamedTuple):
    """A socket that listens at the gateway, attached to the answer; ``port`` 0: any."""

    port: int


class SetForwards(NamedTuple):
    """Replace what the relay forwards."""

    forwards: tuple[Forward, ...]


class SetNetwork(NamedTuple):
    """Whether pods reach what the machine reaches, and which ``ports`` of its loopback."""

    is_open: bool
    ports: tuple[int, ...] = ()


class Name(NamedTuple):
    """An address that a Service's name stands for, with the own name of the pod that has it.
    ``ports``: its numbers of the Service's named ports, 0 where it has none."""

    address: str
    hostname: str = ""
    ports: tuple[int, ...] = ()


class Named(NamedTuple):
    """What is known of a Service. ``ports``: names of its ports, such as _http._tcp; ``alias``: of
    an ExternalName what it stands for."""

    names: tuple[Name, ...] = ()
    ports: tuple[str, ...] = ()
    is_headless: bool = False
    alias: str = ""


class SetNames(NamedTuple):
    """What has changed of Services, each by namespace/name: a ``Named`` as a JSON array, which only
    the relay reads, "" for one that is no more. ``is_all``: there are no others."""

    changed: dict[str, str]
    is_all: bool = False


class Shutdown(NamedTuple):
    """End every pod, and the shim."""


ContainerRequest: TypeAlias = Start | Exec | EndSession | Signal | Kill
PodRequest: TypeAlias = AddPod | AddTmpfs | Attach | OpenSocket | RemovePod
NodeRequest: TypeAlias = OpenListener | SetForwards | SetNames | SetNetwork | Shutdown
Request: TypeAlias = ContainerRequest | PodRequest | NodeRequest


class Answer(NamedTuple):
    """To one request. ``error``: why it was refused. ``descriptors``: how many are attached."""

    error: str = ""
    address: str = ""
    descriptors: int = 0


class ContainerState(NamedTuple):
    """A run of a container, when it has started and when it has ended; times in nanoseconds.
    ``full``: it failed when there was no room left in its root's layer."""

    pod: str
    name: str
    attempt: int
    pid: int
    state: Literal["starting", "running", "exited"]
    started_at: int
    finished_at: int = 0
    code: int | None = None
    signal: int = 0
    error: str = ""
    full: bool = False
    gpus: tuple[int, ...] = ()
    cgroups: tuple[str, ...] = ()


class PodState(NamedTuple):
    """A pod that the shim has."""

    pod: str
    address: str
    containers: tuple[ContainerState, ...] = ()


class Hello(NamedTuple):
    """The first event, with `wire.MEMORY` opened. ``reason``: why pods are not better separated."""

    pid: int
    isolation: Literal["root", "rootless", "plain"]
    reason: str
    gateway: str
    pods: tuple[PodState, ...] = ()
    version: int = 1
    descriptors: int = 0


class Failed(NamedTuple):
    """The first event and the last: the shim cannot do what it was asked for."""

    reason: str


class SessionEnded(NamedTuple):
    """A command started by ``Exec`` has ended."""

    session: str
    code: int


Event: TypeAlias = Hello | Failed | ContainerState | SessionEnded

_REQUESTS: dict[str, type[Request]] = {
    "pod": AddPod,
    "tmpfs": AddTmpfs,
    "start": Start,
    "attach": Attach,
    "exec": Exec,
    "end_session": EndSession,
    "signal": Signal,
    "kill": Kill,
    "remove": RemovePod,
    "socket": OpenSocket,
    "listener": OpenListener,
    "forward": SetForwards,
    "network": SetNetwork,
    "names": SetNames,
    "shutdown": Shutdown,
}
_EVENTS: dict[str, type[Event]] = {
    "hello": Hello,
    "failed": Failed,
    "container": ContainerState,
    "exec": SessionEnded,
}
_NAMES: dict[type, str] = {
    kind: name for kinds in (_REQUESTS, _EVENTS) for name, kind in kinds.items()
}


def name_of(message: Request | Event) -> str:
    """The word for it on the wire."""
    return _NAMES[type(message)]


def request(number: int, message: Request, descriptors: int = 0) -> Raw:
    """A request as it is sent, with ``descriptors`` attached."""
    head: Raw = {"id": number, "op": name_of(message)}
    return head | ({"descriptors": descriptors} if descriptors else {}) | to_raw(message)


def answer(number: int, message: Answer) -> Raw:
    """An answer as it is sent."""
    return {"id": number, **to_raw(message)}


def event(message: Event) -> Raw:
    """An event as it is sent."""
    return {"event": name_of(message), **to_raw(message)}


def read_request(raw: Raw) -> Request:
    """Raises ProtocolError."""
    return _parse_kind(_REQUESTS, "op", raw)


def read_event(raw: Raw) -> Event:
    """Raises ProtocolError."""
    return _parse_kind(_EVENTS, "event", raw)


def number_of(raw: Raw, key: str = "id") -> int:
    """A number of the envelope; raises ProtocolError where it is something else."""
    value = raw.get(key, 0)
    if type(value) is not int or value < 0:
        raise ProtocolError(f"{key} is {value!r}, not a number")
    return value


def _parse_kind(kinds: dict[str, type[Kind]], key: str, raw: Raw) -> Kind:
    kind = kinds.get(str(raw.get(key)))
    if kind is None:
        raise ProtocolError(f"{key} is {raw.get(key)!r}, not one of {', '.join(kinds)}")
    return from_raw(kind, raw)


def to_raw(message: Any) -> Raw:
    """The fields of a message that differ from their defaults, as JSON has them."""
    defaults = message._field_defaults
    return {
        _camel(name): _to_plain(value)
        for name, value in zip(message._fields, message, strict=True)
        if name not in defaults or value != defaults[name]
    }


def packed(message: Any) -> bytes:
    """The same as text, as it is sent between processes of the pod runtime."""
    return json.dumps(to_raw(message), separators=(",", ":")).encode()


def from_raw(kind: type[Kind], raw: object, where: str = "") -> Kind:
    """A message of this type; raises ProtocolError. What it has beyond its fields is ignored."""
    if not isinstance(raw, dict):
        raise ProtocolError(f"{where or kind.__name__} is not an object")
    values = {}
    described: Any = kind
    for name, wire_name, hint, is_required in _fields(described):
        if wire_name in raw:
            value = raw[wire_name]
            if type(value) is not hint:
                value = _read(hint, value, f"{where}.{wire_name}".lstrip("."))
            values[name] = value
        elif is_required:
            raise ProtocolError(f"{kind.__name__}: {f'{where}.{wire_name}'.lstrip('.')} is missing")
    return kind(**values)


@functools.cache
def _fields(kind: Any) -> list[tuple[str, str, Any, bool]]:
    hints = typing.get_type_hints(kind)
    return [(n, _camel(n), hints[n], n not in kind._field_defaults) for n in kind._fields]


@functools.cache
def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))


def _to_plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return to_raw(value) if hasattr(value, "_fields") else [_to_plain(item) for item in value]
    return value


def _read(hint: Any, raw: Any, where: str) -> Any:
    if hint in (str, int, bool):
        if type(raw) is hint:
            return raw
    elif hasattr(hint, "_fields"):
        return from_raw(hint, raw, where)
    else:
        origin, of = typing.get_origin(hint), typing.get_args(hint)
        if origin is types.UnionType:  # X | None
            return None if raw is None else _read(of[0], raw, where)
        if origin is Literal and raw in of:
            return raw
        if origin is tuple and isinstance(raw, list):
            kinds = [of[0]] * len(raw) if of[-1] is ... else of
            if len(kinds) == len(raw):
                items = zip(kinds, raw, strict=True)
                return tuple(_read(k, r, f"{where}[{n}]") for n, (k, r) in enumerate(items))
        if origin is dict and isinstance(raw, dict):
            if all(type(item) is of[1] for item in raw.values()):
                return raw
            return {key: _read(of[1], item, f"{where}[{key}]") for key, item in raw.items()}
    raise ProtocolError(f"{where} is {raw!r:.80}, not {getattr(hint, '__name__', hint)}")
