"""Requests to the API: valid ones of every verb and kind, with something changed."""

from __future__ import annotations

import base64
import json
import random
import shlex
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

import yaml

from tests.fuzz import corpus
from tests.fuzz.mutation import mutated, mutated_bytes, paths, strange
from trainyard.embedded.apiserver.pod_access import spdy
from trainyard.embedded.resources.resource import Served

Value = Any
LIVE = "live"
"""A pod in `default` that runs."""
JSON, YAML = "application/json", "application/yaml"
PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
_SELECTORS = (
    *("a=b", "a!=b", "a in (b,c)", "a notin (b)", "!a", "a", "a>1", "metadata.name=a", "((", "a="),
    *("metadata.name!=a,metadata.namespace=default", "status.phase=Running", "spec.nodeName=", ","),
    *("a in (", "=", "==", "!=", "a=b=c", "ä", "a" * 400, "involvedObject.name=a", "a in ()"),
)
_VERSIONS = ("0", "1", "5", "999999", "-1", "x", "", "1.5", "²", "9" * 40, "00", "1e3")
_QUERIES = {
    "dryRun": ("All", "", "None", "all"),
    "fieldManager": ("me", "", "x" * 200, "ä", "a\n"),
    "fieldValidation": ("Strict", "Warn", "Ignore", "x"),
    "force": ("1", "true", "false", "x"),
    "labelSelector": _SELECTORS,
    "fieldSelector": _SELECTORS,
    "limit": ("1", "2", "0", *_VERSIONS),
    "continue": ("", "x", "WyJhIiwiYiIsMV0=", "W10=", "bnVsbA==", "ew==", "\x00"),
    "resourceVersion": _VERSIONS,
    "resourceVersionMatch": ("Exact", "NotOlderThan", "x"),
    "timeoutSeconds": ("1", *_VERSIONS),
    "watch": ("1", "true", "0"),
    "allowWatchBookmarks": ("1",),
    "sendInitialEvents": ("1", "x"),
    "gracePeriodSeconds": ("0", *_VERSIONS),
    "propagationPolicy": ("Foreground", "Orphan", "x"),
    "orphanDependents": ("true",),
    "container": ("c", "x", ""),
    "command": ("true", "", "x" * 2000),
    "follow": ("1",),
    "previous": ("1",),
    "tailLines": _VERSIONS,
    "limitBytes": _VERSIONS,
    "sinceSeconds": _VERSIONS,
    "sinceTime": ("2026-01-01T00:00:00Z", "x", "0000-01-01T00:00:00Z", "9999-12-31T23:59:60+99:99"),
    "ports": ("80", "0", "x", "80,81", "99999"),
    "includeObject": ("Object", "None", "x"),
    "tty": ("1",),
    "stdin": ("1",),
    "stdout": ("1",),
    "stderr": ("1",),
}
_ACCEPTS = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/vnd.kubernetes.protobuf",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "*/*;;=,",
)
_TYPES = (JSON, YAML, *PATCHES.values(), "application/vnd.kubernetes.protobuf", "text/x", "", ";;")
_ODD_PATHS = (
    *("/", "/api", "/apis", "/version", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1", "*"),
    *("/readyz", "/apis/batch.tensorstack.dev", "/api/v2", "/apis/x/y/z", "//", "/../..", "/%00"),
    *("/openapi/v3/apis/batch.tensorstack.dev/v1beta1", "/api/v1/namespaces/a/b/c/d", "/%zz"),
    *("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "http://x/version", "/api/v1"),
    *("/apis/authentication.k8s.io/v1/selfsubjectreviews", "/openapi/v3/" + "x/" * 500),
)


@dataclass(frozen=True)
class Ask:
    """One request. `raw` are its bytes where they are no HTTP that anybody would write."""

    method: str = "GET"
    path: str = "/"
    kind: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: Value = None
    raw: bytes | None = None
    after: bytes = field(default=b"", repr=False)
    """What is sent once the protocol has been switched."""
    by_guest: bool = False
    """Sent by one who does not own the cluster."""

    def payload(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return b"" if self.body is None else json.dumps(self.body).encode("utf-8", "surrogatepass")

    def encoded(self, token: str = "") -> bytes:
        """The request as it goes over a connection."""
        if self.raw is not None:
            return self.raw
        lines = [f"{self.method} {self.path} HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        lines += [f"Content-Type: {self.kind}"] if self.kind else []
        lines += [f"Authorization: Bearer {token}"] if token else []
        body = self.payload()
        lines.append(f"Content-Length: {len(body)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace") + body

    def __str__(self) -> str:
        """A command that sends it to the server on `api.sock`."""
        if self.raw is not None:
            return f"printf %b {shlex.quote(_escaped(self.raw))} | nc -U api.sock"
        words = ["curl", "--unix-socket", "api.sock", "-X", self.method]
        words += [word for name, value in self.headers for word in ("-H", f"{name}: {value}")]
        words += ["-H", f"Content-Type: {self.kind}"] if self.kind else []
        body = self.payload().decode("utf-8", "backslashreplace")
        words += ["--data-binary", body] if body else []
        return shlex.join([*words, f"http://localhost{self.path}"])


def _escaped(data: bytes) -> str:
    return "".join(chr(b) if 32 <= b < 127 and b != 92 else f"\\x{b:02x}" for b in data)


def collection(row: Served, namespace: str) -> str:
    return row.resource.path(namespace if row.resource.namespaced else None)


def batch(rng: random.Random, count: int) -> list[Ask]:
    """Requests that build on each other: what one makes, the next may find."""
    rows = rng.sample(corpus.rows(), 4)  # few kinds, so that there is something of each
    return [one(rng, rng.choice(rows)) for _ in range(count)]


def one(rng: random.Random, row: Served) -> Ask:
    """One request about a kind."""
    ask = rng.choices(
        (_create, _replace, _patch, _status, _read, _delete, _subresource, _stream, _odd),
        (26, 12, 26, 10, 10, 4, 8, 4, 6),
    )[0](rng, row)
    if rng.random() < 0.2:
        ask = replace(ask, path=_with_query(ask.path, rng))
    if rng.random() < 0.08:
        ask = replace(ask, headers=(*ask.headers, ("Accept", rng.choice(_ACCEPTS))))
    if rng.random() < 0.04:
        ask = replace(ask, kind=rng.choice(_TYPES))
    if rng.random() < 0.04:
        ask = replace(ask, body=mutated_bytes(ask.payload(), rng))
    if rng.random() < 0.1:
        ask = replace(ask, by_guest=True)
    if rng.random() < 0.04:
        ask = replace(ask, raw=_broken(mutated_bytes(ask.encoded(), rng), rng))
    return ask


def _broken(data: bytes, rng: random.Random) -> bytes:
    lines = (
        *(b"Content-Length: 5", b"Content-Length: -1", b"Transfer-Encoding: chunked", b"A: \0b"),
        *(b"Transfer-Encoding: gzip, chunked", b"Expect: 100-continue", b"Content-Encoding: gzip"),
        *(b"Connection: Upgrade", b"Upgrade: h2c", b" folded: x", b":", b"Host: a", b"\xff: \xff"),
    )
    if rng.random() < 0.5:
        head, sep, body = data.partition(b"\r\n")
        data = head + sep + rng.choice(lines) + b"\r\n" + body
    return data


def _name(rng: random.Random) -> str:
    odd = ("..", "%2e%2e", "%00", "a%2Fb", "A", "x" * 300, "%ff", "-", "a.b", "ä")
    return quote(rng.choice(odd), "%") if rng.random() < 0.04 else rng.choice(corpus.NAMES)


def _place(rng: random.Random, row: Served) -> str:
    return collection(row, rng.choice(corpus.NAMESPACES))


def _with_query(path: str, rng: random.Random) -> str:
    chosen = rng.sample(sorted(_QUERIES), rng.randint(1, 3))
    pairs = [f"{key}={quote(rng.choice(_QUERIES[key]))}" for key in chosen]
    return path + ("&" if "?" in path else "?") + "&".join(pairs)


def _body(rng: random.Random, row: Served) -> Value:
    obj = corpus.valid(row, rng)
    return obj if rng.random() < 0.3 else mutated(obj, rng)


def _create(rng: random.Random, row: Served) -> Ask:
    body, kind = _body(rng, row), JSON
    if rng.random() < 0.1:
        return Ask("POST", _place(rng, row), YAML, body=_yaml(body))
    if rng.random() < 0.05:
        data = b"k8s\0" + bytes(rng.randrange(256) for _ in range(rng.randrange(40)))
        return Ask("POST", _place(rng, row), "application/vnd.kubernetes.protobuf", body=data)
    return Ask("POST", _place(rng, row), kind, body=body)


def _yaml(value: Value) -> bytes:
    try:
        return yaml.dump(value, sort_keys=False).encode("utf-8", "surrogatepass")
    except (RecursionError, yaml.YAMLError):
        return b"{"


def _replace(rng: random.Random, row: Served) -> Ask:
    return Ask("PUT", f"{_place(rng, row)}/{_name(rng)}", JSON, body=_body(rng, row))


def _patch(rng: random.Random, row: Served) -> Ask:
    where = f"{_place(rng, row)}/{_name(rng)}"
    if row.status and rng.random() < 0.2:
        where += "/status"
    return _patch_at(rng, row, where)


def _patch_at(rng: random.Random, row: Served, where: str) -> Ask:
    style = rng.choice(sorted(PATCHES))
    obj = corpus.valid(row, rng)
    if style == "json":
        return Ask("PATCH", where, PATCHES[style], body=_operations(obj, rng))
    body = mutated(obj, rng)
    if rng.random() < 0.5 and isinstance(body, dict) and body:
        key = rng.choice(sorted(body, key=str))
        body = {key: body[key]}
    if style == "apply":
        given = {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
        body = {**given, **body} if isinstance(body, dict) else body
        where += f"?fieldManager={rng.choice(('me', 'you'))}&force={rng.choice('01')}"
        if rng.random() < 0.3:
            return Ask("PATCH", where, PATCHES[style], body=_yaml(body))
    return Ask("PATCH", where, PATCHES[style], body=body)


def _operations(obj: Value, rng: random.Random) -> Value:
    found = []
    for _ in range(rng.randint(1, 4)):
        known = [*paths(obj), ("status",), ("metadata", "labels"), ("spec", "-"), ("x", 0)]
        places = ["".join(f"/{part}" for part in rng.choice(known)) for _ in range(2)]
        operation = {
            "op": rng.choice(("add", "remove", "replace", "copy", "move", "test")),
            "path": places[0],
            "from": places[1],
            "value": strange(rng),
        }
        found.append(mutated(operation, rng, 1) if rng.random() < 0.2 else operation)
    return found


def _status(rng: random.Random, row: Served) -> Ask:
    where = f"{_place(rng, row)}/{_name(rng)}/status"
    obj = corpus.valid(row, rng)
    obj["status"] = corpus.status(row, rng)
    if rng.random() < 0.5:
        return Ask("PUT", where, JSON, body=mutated(obj, rng))
    return Ask("PATCH", where, PATCHES["merge"], body={"status": mutated(obj["status"], rng)})


def _read(rng: random.Random, row: Served) -> Ask:
    where = _place(rng, row)
    if rng.random() < 0.4:
        return Ask("GET", f"{where}/{_name(rng)}")
    method = rng.choice(("GET", "GET", "GET", "HEAD", "OPTIONS"))
    path = _with_query(where, rng) if rng.random() < 0.7 else where
    return Ask(method, path + (("&" if "?" in path else "?") + "watch=1") * (rng.random() < 0.4))


def _delete(rng: random.Random, row: Served) -> Ask:
    where = _place(rng, row) + (f"/{_name(rng)}" if rng.random() < 0.7 else "")
    options = {
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u", "resourceVersion": "1"},
        "dryRun": ["All"],
        "orphanDependents": False,
    }
    body = mutated({rng.choice(sorted(options)): rng.choice(list(options.values()))}, rng)
    return Ask("DELETE", where, JSON, body=rng.choice((None, body, {**options, "dryRun": []})))


def _subresource(rng: random.Random, row: Served) -> Ask:
    names = [*row.subresources, "status", "scale", "x"]
    name = rng.choice(names)
    where = f"{_place(rng, row)}/{_name(rng)}/{name}"
    if name in ("attach", "exec", "portforward"):
        return _stream(rng, row)
    if name == "log":
        return Ask("GET", _with_query(where, rng))
    bodies: dict[str, Value] = {
        "binding": {"target": {"name": "n", "kind": "Node"}, "metadata": {"name": "a"}},
        "eviction": {"metadata": {"name": "a"}, "deleteOptions": {"gracePeriodSeconds": 0}},
        "finalize": {"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}},
        "scale": {"metadata": {"name": "a"}, "spec": {"replicas": 2}},
    }
    body = mutated(bodies.get(name, corpus.valid(row, rng)), rng)
    method = rng.choice(("POST", "PUT", "PATCH", "GET"))
    kind = rng.choice(sorted(PATCHES.values())) if method == "PATCH" else JSON
    return Ask(method, where, kind, body=body)


def _stream(rng: random.Random, row: Served) -> Ask:
    """Commands in a pod, its ports and its log."""
    pod = LIVE if rng.random() < 0.8 else _name(rng)
    where = f"/api/v1/namespaces/default/pods/{pod}"
    if rng.random() < 0.15:
        return Ask("GET", _with_query(f"{where}/log", rng))
    return _upgrade(rng, f"{where}/{rng.choice(('attach', 'exec', 'portforward'))}")


def _upgrade(rng: random.Random, where: str) -> Ask:
    path = _with_query(where + "?stdin=1&stdout=1&stderr=1&command=cat&ports=80", rng)
    if rng.random() < 0.5:
        headers = (("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"))
        return Ask(rng.choice(("POST", "GET")), path, headers=headers, after=_spdy(rng))
    protocols = "v5.channel.k8s.io, v4.channel.k8s.io, SPDY/3.1+portforward.k8s.io"
    headers = (
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Key", base64.b64encode(rng.randbytes(16)).decode()),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Protocol", protocols),
    )
    return Ask("GET", path, headers=headers, after=_frames(rng))


def _spdy(rng: random.Random) -> bytes:
    deflater = zlib.compressobj(zdict=spdy.DICTIONARY)
    data = b""
    for number in range(1, 2 * rng.randint(1, 8), 2):
        pairs = {
            "streamtype": rng.choice(("stdin", "stdout", "stderr", "error", "data", "resize")),
            "requestid": str(number // 4),
            "port": rng.choice(("80", "x", "99999", "²")),
        }
        block = struct.pack(">I", len(pairs))
        for word in (each for pair in pairs.items() for each in pair):
            text = word.encode()
            block += struct.pack(">I", len(text)) + text
        body = deflater.compress(block) + deflater.flush(zlib.Z_SYNC_FLUSH)
        data += _control(1, struct.pack(">IIH", number, 0, 0) + body)
        data += struct.pack(">II", number, rng.choice((0, 1 << 24)) | 3) + b"abc"
    data += _control(rng.choice((2, 3, 4, 6, 7, 9)), rng.randbytes(rng.randrange(12)))
    return mutated_bytes(data, rng) if rng.random() < 0.8 else data


def _control(kind: int, body: bytes) -> bytes:
    return struct.pack(">HHI", 0x8003, kind, len(body)) + body


def _frames(rng: random.Random) -> bytes:
    data = b""
    for _ in range(rng.randint(1, 6)):
        text = bytes([rng.choice((0, 1, 4, 255, 9))]) + rng.choice((b"x", b'{"Width":1e9}', b""))
        opcode = rng.choice((0x82, 0x82, 0x81, 0x02, 0x80, 0x88, 0x89, 0x8A))
        data += bytes([opcode, 0x80 | len(text)]) + b"\0\0\0\0" + text
    return mutated_bytes(data, rng) if rng.random() < 0.8 else data


def _review(rng: random.Random, row: Served) -> Ask:
    kind = rng.choice(("selfsubjectaccessreviews", "selfsubjectrulesreviews"))
    body = mutated({"kind": "X", "spec": {"resourceAttributes": {"verb": "get"}}}, rng)
    return Ask("POST", f"/apis/authorization.k8s.io/v1/{kind}", JSON, body=body)


def _odd(rng: random.Random, row: Served) -> Ask:
    if rng.random() < 0.2:
        return _review(rng, row)
    method = rng.choice(("GET", "POST", "PUT", "DELETE", "OPTIONS", "PROPFIND", "TRACE", "CONNECT"))
    return Ask(method, rng.choice(_ODD_PATHS), JSON, body=strange(rng))


def smaller(ask: Ask) -> list[Ask]:
    """Requests that are like this one, and simpler."""
    found: list[Ask] = []
    if ask.raw is not None:
        half = len(ask.raw) // 2
        found += [replace(ask, raw=cut) for cut in (ask.raw[:half], ask.raw[half:]) if cut]
        found += [replace(ask, raw=ask.raw[:n] + ask.raw[n + 1 :]) for n in range(len(ask.raw))]
        return found
    if "?" in ask.path:
        path, _, query = ask.path.partition("?")
        found.append(replace(ask, path=path))
        pairs: Sequence[str] = query.split("&")
        for gone in pairs:
            rest = "&".join(each for each in pairs if each != gone)
            found.append(replace(ask, path=f"{path}?{rest}"))
    found += [replace(ask, headers=tuple(h for h in ask.headers if h != g)) for g in ask.headers]
    if isinstance(ask.body, dict | list):
        for path in paths(ask.body)[1:]:
            found.append(replace(ask, body=_without(ask.body, path)))
    return found


def _without(value: Value, gone: tuple[str | int, ...]) -> Value:
    if not gone:
        return value
    first, *rest = gone
    if isinstance(value, dict):
        if not rest:
            return {key: below for key, below in value.items() if key != first}
        return {**value, first: _without(value[first], tuple(rest))}
    items = list(value)
    if rest:
        items[first] = _without(items[first], tuple(rest))  # type: ignore[index, call-overload]
    else:
        del items[first]  # type: ignore[arg-type]
    return items
