"""The messages between agent and shim: every request, answer and event, as a type.

On the wire a message is a JSON object with its fields in camelCase. Its type stands under ``op`` (a
request, which also has a number, ``id``) or ``event``; an answer has the ``id`` of its request. The
names in ``_REQUESTS`` and ``_EVENTS``, and the fields, are the wire format, and agents and shims of
different releases meet. Within a ``VERSION`` messages and fields are only added. A new field has a
default that means what was meant without it; who does not know a field ignores it; a request that
a shim does not know is answered with an error.

Named tuples rather than dataclasses, since they are defined faster and the shim starts before
anything else. Annotations are types and not texts, which the library would compile.
"""

import functools
import json
import types
import typing
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

VERSION = 7
"""The version of this protocol. An agent must not speak to a shim that has another, so no shim that
holds pods survives a new one: it takes a new major version of trainyard."""

Raw = dict[str, Any]
Kind = TypeVar("Kind")


class ProtocolError(ValueError):
    """A message is incomplete or malformed; the text names the field."""


class Bind(NamedTuple):
    """A path of the host to mount into the pod. Links on it are not followed."""

    target: str
    source: str
    read_only: bool = False
    inner: str = ""
    """A path in ``source`` to mount instead; a folder is made where it is missing."""
    private: bool = False
    """Whether it lies in a hidden folder, to which pods have no other access."""


class Account(NamedTuple):
    """A user id with its group ids."""

    user: int
    group: int
    groups: tuple[int, ...]


class Root(NamedTuple):
    """A container's root file system, a layer over the host's."""

    binds: tuple[Bind, ...] = ()
    devices: tuple[str, ...] = ()
    read_only: bool = False
    privileged: bool = False
    work: str = ""
    size: int = 0
    """How many bytes the layer may hold; 0: half of the memory."""
    hidden: tuple[str, ...] = ()
    """Folders of the host to cover wherever they would be visible, besides the shim's own."""
    account: Account | None = None
    """With whose rights to reach the host's paths and make folders in volumes; None: our own."""


class Program(NamedTuple):
    """A program and as whom it runs. Capabilities are bit masks; ``gpus`` are only recorded."""

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
    """How many processes it may have where no control group counts them; 0: no limit."""
    unconfined: bool = False
    """Whether it runs without a filter of system calls."""


class Forward(NamedTuple):
    """Connections (or datagrams) to ``address:port`` go to one of ``endpoints``, in turn."""

    address: str
    port: int
    endpoints: tuple[tuple[str, int], ...]
    protocol: Literal["TCP", "UDP"] = "TCP"


class AddPod(NamedTuple):
    """Make a pod's network, host name and IPC namespace; answered with its ``address``."""

    pod: str
    hostname: str
    address: str = ""
    """The wanted address, where pods are plain processes."""


class AddTmpfs(NamedTuple):
    """Mount a tmpfs of at most ``size`` bytes (0: no limit) on ``path``, for this pod alone."""

    pod: str
    path: str
    size: int


class Start(NamedTuple):
    """Start a container; events report how it goes on. Plain processes have no ``root``."""

    pod: str
    name: str
    attempt: int
    log: str
    program: Program
    root: Root | None = None
    log_bytes: int = 10 << 20
    log_files: int = 5
    """How the log rotates: see ``log_files.LogLimits``."""
    stdin: Literal["", "once", "open"] = ""
    """Whether it has standard input to attach to, and whether that ends with the first who does."""
    tty: bool = False
    share_processes_with: str = ""
    """The container whose process namespace to share, instead of having a new one."""


class Attach(NamedTuple):
    """Copy a container's output from now on to a pipe, whose writing end is attached.

    It is closed at the end of the output. If the container has standard input, its writing end is
    attached to the answer: a terminal's controlling end, or a pipe. The pipe is given away for good
    where input ends with the first who attaches (``Start.stdin`` is ``once``).
    """

    pod: str
    name: str
    stdin: bool = False


class Exec(NamedTuple):
    """Run a command in a container; its end is a ``SessionEnded``.

    Attached are its stdin, stdout and stderr, or with ``tty`` a socket that receives the terminal's
    controlling end.
    """

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
    """Kill one container, or all of the pod, with all processes in it."""

    pod: str
    name: str = ""


class RemovePod(NamedTuple):
    """Remove a pod: its namespaces and its address are free again."""

    pod: str


class OpenSocket(NamedTuple):
    """Open a TCP socket inside the pod's network; it is attached to the answer."""

    pod: str


class OpenListener(NamedTuple):
    """Listen at the gateway (``port`` 0: any); the socket is attached to the answer."""

    port: int


class SetForwards(NamedTuple):
    """Replace what the service relay forwards."""

    forwards: tuple[Forward, ...]


STARTER_DIED = "the process that starts relays has died"
"""Why the way out is closed where the kernel could have it."""


class SetNetwork(NamedTuple):
    """Set whether pods reach what the machine reaches, and which ``ports`` of its loopback."""

    is_open: bool
    ports: tuple[int, ...] = ()


class Name(NamedTuple):
    """An address behind a Service's name, with the host name of the pod that has it.

    ``ports``: its numbers of the Service's named ports, 0 where it lacks one.
    """

    address: str
    hostname: str = ""
    ports: tuple[int, ...] = ()


class Named(NamedTuple):
    """DNS data of a Service.

    ``ports``: names of its ports, such as _http._tcp. ``alias``: the target of an ExternalName.
    """

    names: tuple[Name, ...] = ()
    ports: tuple[str, ...] = ()
    is_headless: bool = False
    alias: str = ""


class SetNames(NamedTuple):
    """Change the Services that DNS knows, by namespace/name.

    The value is a ``Named`` as a JSON array, which only the relay parses, or "" for a Service that
    is gone. ``is_all``: there are no others.
    """

    changed: dict[str, str]
    is_all: bool = False


class Shutdown(NamedTuple):
    """End every pod, and the shim."""


ContainerRequest: TypeAlias = Start | Exec | EndSession | Signal | Kill
PodRequest: TypeAlias = AddPod | AddTmpfs | Attach | OpenSocket | RemovePod
NodeRequest: TypeAlias = OpenListener | SetForwards | SetNames | SetNetwork | Shutdown
Request: TypeAlias = ContainerRequest | PodRequest | NodeRequest


class Answer(NamedTuple):
    """The answer to a request. ``error``: why it was refused. ``descriptors``: how many are
    attached."""

    error: str = ""
    address: str = ""
    descriptors: int = 0


class ContainerState(NamedTuple):
    """One run of a container, sent when it has started and when it has exited.

    Times are in nanoseconds since 1970. ``full``: it failed when its root's layer had no room left.
    """

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
    """A pod of the shim, as ``Hello`` lists it."""

    pod: str
    address: str
    containers: tuple[ContainerState, ...] = ()


class Hello(NamedTuple):
    """The first event, with ``wire.MEMORY`` attached. ``reason``: why isolation is not stronger.

    ``build``: what the shim was started from, as its starter calls it; "": before that was told.
    """

    pid: int
    isolation: Literal["root", "rootless", "plain"]
    reason: str
    gateway: str
    pods: tuple[PodState, ...] = ()
    version: int = 1
    descriptors: int = 0
    build: str = ""


class Failed(NamedTuple):
    """The only event: the shim cannot work here."""

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
    """Its name on the wire."""
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
    """Parse a message; raises ProtocolError."""
    return _parse_kind(_REQUESTS, "op", raw)


def read_event(raw: Raw) -> Event:
    """Parse a message; raises ProtocolError."""
    return _parse_kind(_EVENTS, "event", raw)


def number_of(raw: Raw, key: str = "id") -> int:
    """A number of the envelope; raises ProtocolError if it is something else."""
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
    """The fields that differ from their defaults, as a JSON object."""
    defaults = message._field_defaults
    return {
        _wire_name(name): _to_plain(value)
        for name, value in zip(message._fields, message, strict=True)
        if name not in defaults or value != defaults[name]
    }


def packed(message: Any) -> bytes:
    """The same as bytes, as processes of the pod runtime send it to each other."""
    return json.dumps(to_raw(message), separators=(",", ":")).encode()


def from_raw(kind: type[Kind], raw: object, where: str = "") -> Kind:
    """Parse a message of this type; raises ProtocolError. Unknown fields are ignored."""
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
    return [(n, _wire_name(n), hints[n], n not in kind._field_defaults) for n in kind._fields]


_WIRE_NAMES = {"share_processes_with": "beside"}
"""Fields that keep an older name on the wire, for agents and shims of other versions."""


@functools.cache
def _wire_name(name: str) -> str:
    if name in _WIRE_NAMES:
        return _WIRE_NAMES[name]
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
