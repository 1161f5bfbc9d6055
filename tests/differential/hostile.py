"""Requests that are well-formed enough to be read, and otherwise as odd as we could think of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from tests.differential.cases import (
    APPLY,
    COLLECTIONS,
    CONFIG_MAP,
    GONE,
    JSON,
    LEASE,
    MERGE,
    PATCH,
    POD,
    SECRET,
    SERVICE,
    STRATEGIC,
    Case,
    Object,
    Step,
    changed,
)
from tests.differential.jobs import ELASTIC, PLAIN, place_of
from tests.differential.requests import LATEST

PODS, MAPS, SERVICES, SECRETS, LEASES = (
    COLLECTIONS[kind][0] for kind in ("pod", "configmap", "service", "secret", "lease")
)
JOBS = place_of(PLAIN)
MAP, JOB = f"{MAPS}/c", f"{JOBS}/mnist"
HELD = {"metadata": {"finalizers": ["example.com/f"]}}
MADE, MADE_MAP, MADE_JOB = (
    Step("POST", PODS, POD),
    Step("POST", MAPS, CONFIG_MAP),
    Step("POST", JOBS, PLAIN),
)
NUMBERS = (
    *("0", "+1", "1.5", "0x1", "1e1", "007", "%201", "1%20", "9223372036854775807"),
    *("9223372036854775808", "-9223372036854775808", "18446744073709551616", "%D9%A1", "null"),
)
LABELS = (
    *("a in (", "a notin ()", "a in ()", "in", "in in (in)", "!", "!!a", "! a", "a,,b", ",a", "a,"),
    *("a==b==c", "a=,b=", "a>x", "a>1.5", "a>9223372036854775808", "(a)", "ä", "a=ä", "a/b/c=d"),
    *("a" * 63, "a" * 64, f"a={'b' * 63}", f"a={'b' * 64}", f"{'a' * 254}/b", "a!=b,c"),
    *("a in (b,c),d notin (e)", "a in (b,,c)", "a\n=b", "a=b;c", "a in b,c", "a=b c", "a =  b"),
    *("a!b", "a=!b", "-a", "a.", "A", "a\x00", "notin", "a notin b", "a<1", "a<-1", "a = =b"),
)
FIELDS = (
    *("metadata.name=a,metadata.name!=b", "metadata.namespace=x", "metadata.labels=a", "=", "=="),
    *("metadata.name==", "metadata.name=a\\,b", "metadata.name=a\\b", "metadata.name>a", "=a"),
    *("metadata.name=a=b", "metadata.name\\=a", ",", "metadata.name=ä", " metadata.name = a"),
    *("metadata.name in (a)", "!metadata.name", "metadata.name=a\\", "Metadata.name=a"),
)
TYPES = (
    *("application/json; charset=utf-8", "application/JSON", "application/json;", "text/json"),
    *("application/json, text/plain", "APPLICATION/YAML", "application/xml", "json", "*/*"),
    *("application/x-yaml", "multipart/form-data", ";", "application/json;charset=latin-1"),
)
PATCH_TYPES = (
    *("application/merge-patch+json; charset=utf-8", "application/merge-patch"),
    *("application/apply-patch+json", "APPLICATION/MERGE-PATCH+JSON", "application/yaml"),
)
METHODS = ("HEAD", "OPTIONS", "FROB", "PROPFIND", "get", "patch")
DELETIONS: tuple[Any, ...] = (
    *({"gracePeriodSeconds": each} for each in (1 << 31, 1 << 40, 1 << 64, 1.5, "5", None, True)),
    *({"propagationPolicy": each} for each in ("", None, "background", 1, [])),
    *({"dryRun": each} for each in ([], None, ["All", "All"], "All", ["all"], [None], [1])),
    *({"preconditions": each} for each in (None, {}, [], "x", {"uid": None}, {"uid": 1})),
    {"preconditions": {"resourceVersion": LATEST}},
    {"preconditions": {"resourceVersion": ""}},
    {"preconditions": {"uid": ""}},
    {"orphanDependents": None},
    {"orphanDependents": "true"},
    {"orphanDependents": False, "propagationPolicy": "Orphan"},
    {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"},
    {"kind": "DeleteOptions", "apiVersion": "v9"},
    {"kind": "DeleteOptions"},
    {"apiVersion": "v1"},
    {"kind": "", "apiVersion": ""},
    None,
    {"metadata": {"name": "x"}},
)
DELETE_QUERIES = (
    *("gracePeriodSeconds=1.5", "gracePeriodSeconds=", "gracePeriodSeconds=2147483648"),
    *("propagationPolicy=", "propagationPolicy=orphan", "orphanDependents=", "orphanDependents=1"),
    *("dryRun=All&dryRun=All", "dryRun=All&dryRun=Some", "dryRun=all", "limit=1", "limit=x"),
    *("labelSelector=a%20b", "fieldSelector=odd%3D1", "labelSelector=a%3Db", "watch=1"),
)
WRITES = (
    *("dryRun=all", "dryRun=All&dryRun=All", "dryRun=All&dryRun=Some", "dryRun=", "fieldManager="),
    *("fieldManager=%C3%A4", "fieldManager=a%00", "fieldManager=%09", "force=true", "pretty=maybe"),
    *("fieldManager=a&fieldManager=b", f"fieldManager={quote('ä' * 70)}"),
)
METADATA: tuple[Object, ...] = (
    *({"metadata": each} for each in (None, [], {}, 1)),
    *({"metadata.name": each} for each in (None, 1, "ä", "名", "a\n", "a%20b", ".", "a..b", True)),
    {"metadata.generateName": None},
    {"metadata.generateName": "ä"},
    {"metadata.name": GONE, "metadata.generateName": "a."},
    *({"metadata.namespace": each} for each in ("", None, 1, "{ns}", "ä")),
    {"metadata.annotations": {"a": "名\u0000\U0001f600"}},
    {"metadata.annotations": {"a": None}},
    {"metadata.annotations": {"ä": "b"}},
    {"metadata.annotations": [None]},
    {"metadata.labels": {"a": "名"}},
    {"metadata.labels": {"a": True}},
    {"metadata.labels": {"a": {}}},
    *({"metadata.finalizers": each} for each in (None, [None], "x", [1], ["a/b"] * 2, ["a/b/c"])),
    {"metadata.finalizers": ["orphan", "foregroundDeletion"]},
    *({"metadata.ownerReferences": each} for each in (None, [None], [{}], {}, [1])),
    {"metadata.managedFields": [None]},
    {"metadata.managedFields": [{}]},
    {"metadata.managedFields": "x"},
    *({"metadata.generation": each} for each in (1 << 63, 1 << 64, 1.5, "1", None, 7)),
    *({"metadata.creationTimestamp": each} for each in ("", 1, None, "2026-02-30T00:00:00Z")),
    {"metadata.creationTimestamp": "2026-01-01T00:00:00+25:00"},
    {"metadata.deletionTimestamp": "x"},
    {"metadata.deletionGracePeriodSeconds": -1},
    {"metadata.selfLink": 1},
    {"metadata.resourceVersion": 1},
    {"metadata.resourceVersion": None},
    {"metadata.uid": 1},
)
OF_PODS: tuple[Object, ...] = (
    *({"spec.containers": each} for each in ([None], [{}], [1], "x", {"a": 1})),
    *(
        {f"spec.containers.0.{field}": [None]}
        for field in ("args", "env", "ports", "volumeMounts", "envFrom")
    ),
    *({f"spec.{f}": [None]} for f in ("volumes", "tolerations", "imagePullSecrets", "hostAliases")),
    *({f"spec.{f}": None} for f in ("tolerations", "nodeSelector", "affinity", "securityContext")),
    *(
        {"spec.containers.0.ports.0": {"containerPort": each}}
        for each in (1 << 32, 1 << 63, 1 << 64, 80.0, 80.5, -(1 << 63), None, True, "80")
    ),
    *({"spec.activeDeadlineSeconds": each} for each in (1 << 31, 1 << 62, 1 << 63, 5.0, None)),
    *({"spec.terminationGracePeriodSeconds": each} for each in (1 << 62, -1, 1.5, None, "x")),
    {"spec.nodeSelector": {"a": None}},
    {"spec.nodeSelector": {"a": 1}},
    {"spec.containers.0.resources": {"limits": {"cpu": None}}},
    {"spec.containers.0.resources": {"limits": {"cpu": "1e400"}}},
    {"spec.containers.0.resources": {"limits": {"cpu": 1 << 64}}},
    {"spec.containers.0.resources": {"limits": {"memory": "9223372036854775808"}}},
    {"spec.containers.0.resources": {"limits": {"cpu": True}}},
    {"spec.containers.0.image": "名:1"},
    {"spec.containers.0.command": ["\u0000"]},
    {"spec.containers.0.env": [{"name": "A", "value": "\U0001f600"}]},
    {"spec.hostname": "ä"},
    {"spec": None},
    {"spec": []},
    {"status": []},
    {"status": {"phase": 1}},
    {"status": None},
    {"kind": None},
    {"kind": ""},
    {"kind": 1},
    {"apiVersion": None},
    {"apiVersion": ""},
    {"kind": "pod"},
    {"spec.containers.0.securityContext": {"runAsUser": 1 << 31}},
    {"spec.containers.0.securityContext": {"runAsUser": 1.0}},
    {"spec.priority": 1 << 31},
)
OF_OTHERS: tuple[tuple[str, Object, Object], ...] = (
    *((MAPS, CONFIG_MAP, {"data": each}) for each in (None, [], {"a": None}, {"ä": "b"}, {"": ""})),
    *((MAPS, CONFIG_MAP, {"data": {"a": each}}) for each in (1, True, {}, "\u0000", "名")),
    *((MAPS, CONFIG_MAP, {"binaryData": {"a": each}}) for each in (None, "", "a", "YQ", "YQ==\n")),
    (MAPS, CONFIG_MAP, {"immutable": "true"}),
    (MAPS, CONFIG_MAP, {"immutable": None}),
    (MAPS, CONFIG_MAP, {"data": {"a": "b"}, "binaryData": {"a": "YQ=="}}),
    *((SECRETS, SECRET, {"stringData": each}) for each in ({"a": None}, {"a": "ä"}, {"a b": "c"})),
    *((SECRETS, SECRET, {"type": each}) for each in (None, "", 1, "a b", "ä")),
    *(
        (SERVICES, SERVICE, {"spec.ports": each})
        for each in (None, [None], [{}], [{"port": 1 << 40}], [{"port": 80.0}], [{"port": None}])
    ),
    *(
        (SERVICES, SERVICE, {"spec.ports.0": {"port": 80, "targetPort": each}})
        for each in (None, "", "ä", 1.5, 1 << 32, True, [])
    ),
    (SERVICES, SERVICE, {"spec.selector": {"a": None}}),
    (SERVICES, SERVICE, {"spec.selector": {"ä": "b"}}),
    (SERVICES, SERVICE, {"spec.clusterIP": None}),
    *((LEASES, LEASE, {"spec.leaseDurationSeconds": each}) for each in (1 << 31, 1.5, "1", -1)),
    *((LEASES, LEASE, {"spec.leaseTransitions": each}) for each in (-1, None, 1 << 31)),
    *((LEASES, LEASE, {"spec.renewTime": each}) for each in (None, "", "now", 1)),
    (LEASES, LEASE, {"spec.renewTime": "2026-01-01T00:00:00Z"}),
    (LEASES, LEASE, {"spec.renewTime": "2026-01-01T00:00:00.123456789Z"}),
)
OF_JOBS: tuple[Object, ...] = (
    *({"spec.replicaSpecs": each} for each in ([None], [], [{}], [1], "x")),
    *({"spec.replicaSpecs.0.replicas": each} for each in (1 << 63, 1 << 64, -1.0, 2.5, True, None)),
    *({f"spec.{f}": None} for f in ("runPolicy", "runMode", "scheduler", "torchrunConfig")),
    *({f"spec.{f}": each} for f in ("runPolicy", "scheduler") for each in ([], "x", 1, True)),
    {"spec.runPolicy": {"backoffLimit": None}},
    {"spec.runPolicy": {"backoffLimit": 3.0}},
    {"spec.runPolicy": {"backoffLimit": 1 << 40}},
    {"spec.replicaSpecs.0.type": None},
    {"spec.replicaSpecs.0.type": "ä"},
    {"spec.replicaSpecs.0.type": ""},
    {"spec.replicaSpecs.0.template": None},
    {"spec.replicaSpecs.0.template": []},
    {"spec.managedBy": None},
    {"spec.managedBy": "ä/b"},
    *({"status": each} for each in (None, [], "x", {"odd": 1})),
    *({"kind": each} for each in (None, "", 1, "pytorchtrainingjob")),
    *({"apiVersion": each} for each in (None, "", 1, "v1", "batch.tensorstack.dev")),
    {"odd": {"a": None}},
)
OPERATIONS: tuple[Any, ...] = (
    *([{"op": "add"}], [{"op": "remove"}], [{"op": "move", "path": "/spec"}], [{"path": "/spec"}]),
    *([{"op": 1, "path": "/a"}], [{"op": "add", "path": 1, "value": 1}], [None], ["x"], [1], [[]]),
    [{"op": "replace", "path": "/metadata/labels"}],
    [{"op": "test", "path": "/metadata/name"}],
    [{"op": "test", "path": "/metadata/uid", "value": None}],
    [{"op": "add", "path": "", "value": {}}],
    [{"op": "remove", "path": ""}],
    [{"op": "add", "path": "/metadata/labels", "value": None}],
    [{"op": "replace", "path": "/kind", "value": "Pod"}],
    [{"op": "replace", "path": "/apiVersion", "value": "v9"}],
    [{"op": "replace", "path": "/metadata/name", "value": "q"}],
    [{"op": "add", "path": "/metadata/finalizers/-", "value": "a/b"}],
    [{"op": "add", "path": "/metadata/finalizers", "value": ["a/b"]}],
    [{"op": "add", "path": "/metadata/labels~1x", "value": 1}],
    [{"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}, "odd": 1}],
    [{"op": "remove", "path": "/spec/replicaSpecs/0"}],
    [{"op": "remove", "path": "/spec/replicaSpecs/9"}],
    [{"op": "remove", "path": "/spec/replicaSpecs/-1"}],
    [{"op": "copy", "from": "/metadata/name", "path": "/metadata/annotations"}],
    [{"op": "move", "from": "/spec", "path": "/spec/x"}],
)
MERGES: tuple[Any, ...] = (
    *({"kind": each} for each in (None, "", "Pod", 1)),
    *({"apiVersion": each} for each in (None, "v9", 1)),
    *({"metadata": each} for each in ([], "x", 1, {"name": None}, {"uid": "other"}, {"uid": None})),
    *({"metadata": {"finalizers": each}} for each in (None, [], ["a/b"], ["a b"], [None], "x")),
    *({"metadata": {"resourceVersion": each}} for each in (None, "", "0", "x", 1)),
    *({"metadata": {"labels": each}} for each in ([], {"a": 1}, {"a": None}, {"ä": "b"})),
    {"metadata": {"generation": 99}},
    {"metadata": {"creationTimestamp": None}},
    {"metadata": {"namespace": "other"}},
    {"metadata": {"odd": 1}},
    {"odd": 1},
    *(None, 1, "x", [], {}),
)


def _said(changes: Any) -> str:
    text = repr(changes).encode("ascii", "backslashreplace").decode()
    return " ".join(text.split())


def _made(path: str, base: Object, tables: Iterable[Object]) -> Iterator[Case]:
    for changes in tables:
        name = f"odd {base['kind']} {_said(changes)}"
        yield Case(name, [Step("POST", path, changed(base, changes))])


def _of_collection(path: str, base: Object) -> Iterator[Case]:
    """What may be asked of any collection, in which there is one object."""
    yield from _read(path, base)
    yield from _written(path, base)
    yield from _deleted(path, base)
    yield from _held(path, base)


def _read(path: str, base: Object) -> Iterator[Case]:
    made, kind = Step("POST", path, base), base["kind"]
    here = f"{path}/{base['metadata']['name']}"
    queries = [f"{key}={each}" for key in ("limit", "resourceVersion") for each in NUMBERS]
    queries += [f"labelSelector={quote(each)}" for each in LABELS]
    queries += [f"fieldSelector={quote(each)}" for each in FIELDS]
    queries += [
        *("timeoutSeconds=0", "timeoutSeconds=-1", "continue=e30", "continue=%00", "continue="),
        *("resourceVersion=1&continue=e30", "resourceVersionMatch=", "limit=1&limit=x"),
        *("watch=0", "watch=&timeoutSeconds=1", "watch=1&resourceVersion=x"),
        "watch=1&labelSelector=a%20b",
        *("watch=1&fieldSelector=odd%3D1", "watch=1&timeoutSeconds=1", "watch=1&timeoutSeconds=x"),
        "watch=1&resourceVersionMatch=Exact&resourceVersion=1&timeoutSeconds=1",
        "watch=1&resourceVersion=0&timeoutSeconds=1&allowWatchBookmarks=1",
    ]
    for query in queries:
        yield Case(f"{kind}s ?{query}", [made, Step("GET", f"{path}?{query}")])
    for method in METHODS:
        yield Case(f"{method} of a {kind}", [made, Step(method, here)])
        yield Case(f"{method} of {kind}s", [Step(method, path)])
    for place in ("odd", "status/odd", "status/", "/", "scale/odd", "%2F", "..", "log"):
        yield Case(f"{kind} at {place}", [made, Step("GET", f"{here}/{place}")])
    doubled = path.replace("namespaces/", "namespaces//")
    for place in (f"{path}/", f"/{path}", doubled, f"{path}/A_b"):
        yield Case(f"GET {place}", [Step("GET", place)])


def _written(path: str, base: Object) -> Iterator[Case]:
    made, kind = Step("POST", path, base), base["kind"]
    here = f"{path}/{base['metadata']['name']}"
    for content in TYPES:
        yield Case(f"{kind} as {content}", [Step("POST", path, base, content)])
    for content in PATCH_TYPES:
        yield Case(f"{kind} patched as {content}", [made, Step("PATCH", here, {}, content)])
    for query in WRITES:
        steps = [Step("POST", f"{path}?{query}", base), Step("GET", here)]
        yield Case(f"{kind} created ?{query}", steps)
        if "anager" not in query:
            steps = [made, Step("PATCH", f"{here}?{query}", HELD, MERGE), Step("DELETE", here)]
            yield Case(f"{kind} patched ?{query}", steps)
    for body in MERGES:
        yield Case(f"{kind} merged {_said(body)}", [made, Step("PATCH", here, body, MERGE)])


def _deleted(path: str, base: Object) -> Iterator[Case]:
    made, kind = Step("POST", path, base), base["kind"]
    here = f"{path}/{base['metadata']['name']}"
    for number, body in enumerate(DELETIONS):
        steps = [made, Step("DELETE", here, body), Step("GET", here)]
        yield Case(f"{kind} deleted {number} {_said(body)}", steps)
    for query in DELETE_QUERIES:
        yield Case(f"{kind}s deleted ?{query}", [made, Step("DELETE", f"{path}?{query}")])
    for content in TYPES[-3:]:
        yield Case(f"{kind} deleted as {content}", [made, Step("DELETE", here, {}, content)])


def _held(path: str, base: Object) -> Iterator[Case]:
    """Finalizers: what may still be done with an object that is being deleted."""
    kind = base["kind"]
    here = f"{path}/{base['metadata']['name']}"
    made = Step("POST", path, changed(base, {"metadata.finalizers": ["example.com/f"]}))
    gone, read = Step("DELETE", here), Step("GET", here)
    taken_out = [{"op": "remove", "path": "/metadata/finalizers/0"}]
    undeleted = {"metadata": {"deletionTimestamp": None}}
    more = {"metadata": {"finalizers": ["example.com/f", "example.com/g"]}}
    for name, steps in {
        "deleted twice": [gone, gone, read],
        "made again": [gone, Step("POST", path, base)],
        "let go": [gone, Step("PATCH", here, {"metadata": {"finalizers": None}}, MERGE), read],
        "let go by an empty list": [
            *(gone, Step("PATCH", here, {"metadata": {"finalizers": []}}, MERGE), read)
        ],
        "let go by a JSON patch": [
            *(gone, Step("PATCH", here, taken_out, PATCH)),
            read,
        ],
        "held by another": [gone, Step("PATCH", here, more, MERGE), read],
        "labelled": [gone, Step("PATCH", here, {"metadata": {"labels": {"a": "b"}}}, MERGE)],
        "undeleted": [gone, Step("PATCH", here, undeleted, MERGE), read],
        "deleted dry": [Step("DELETE", f"{here}?dryRun=All"), read],
        "deleted at once": [Step("DELETE", here, {"gracePeriodSeconds": 0}), read],
        "deleted with all": [Step("DELETE", path), read],
        "let go dry": [
            *(gone, Step("PATCH", f"{here}?dryRun=All", {"metadata": {"finalizers": None}}, MERGE)),
            read,
        ],
    }.items():
        yield Case(f"held {kind} {name}", [made, *steps])


def _core() -> Iterator[Case]:
    yield from _made(PODS, POD, OF_PODS)
    for path, base, changes in OF_OTHERS:
        yield from _made(path, base, [changes])
    yield from _made(MAPS, CONFIG_MAP, METADATA)
    yield from _of_collection(MAPS, CONFIG_MAP)
    pod, status = f"{PODS}/p", f"{PODS}/p/status"
    ready = {"type": "Ready", "status": "True"}
    applied = {**POD, "status": {"phase": "Running"}}
    for name, step in {
        "a JSON patch": Step("PATCH", status, [{"op": "remove", "path": "/status/phase"}], PATCH),
        "conditions": Step("PATCH", status, {"status": {"conditions": [ready]}}, STRATEGIC),
        "no conditions": Step("PATCH", status, {"status": {"conditions": [None]}}, MERGE),
        "labels": Step("PATCH", status, {"metadata": {"labels": {"a": "b"}}}, MERGE),
        "a spec": Step("PATCH", status, {"spec": {"containers": None}}, MERGE),
        "nothing": Step("PATCH", status, {"status": None}, MERGE),
        "a list": Step("PATCH", status, {"status": []}, MERGE),
        "another name": Step("PUT", status, changed(POD, {"metadata.name": "q"})),
        "an old version": Step("PUT", status, changed(POD, {"metadata.resourceVersion": "1"})),
        "POST": Step("POST", status, POD),
        "DELETE": Step("DELETE", status),
        "apply": Step("PATCH", f"{status}?fieldManager=me", applied, APPLY),
        "a watch": Step("GET", f"{status}?watch=1&timeoutSeconds=1"),
    }.items():
        yield Case(f"a pod's status by {name}", [MADE, step])
    yield Case("a pod's status that is not there", [Step("PATCH", status, {}, MERGE)])
    for query in (
        *("tailLines=-1", "tailLines=x", "limitBytes=0", "limitBytes=-1", "sinceSeconds=0"),
        *("sinceSeconds=-1", "sinceSeconds=x", "sinceTime=yesterday", "container=odd"),
        "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
    ):
        yield Case(f"log ?{query}", [MADE, Step("GET", f"{pod}/log?{query}")])
    for place in ("exec", "attach", "portforward", "exec?command=a", "exec?command=a&stdout=1"):
        for method in ("GET", "POST", "PUT", "DELETE"):
            yield Case(f"{method} {place}", [MADE, Step(method, f"{pod}/{place}")])
    for method in ("GET", "PUT", "PATCH", "DELETE"):
        yield Case(f"{method} binding", [MADE, Step(method, f"{pod}/binding", {}, MERGE)])


def _jobs() -> Iterator[Case]:
    yield from _made(JOBS, PLAIN, [*OF_JOBS, *METADATA])
    yield from _of_collection(JOBS, PLAIN)
    for operations in OPERATIONS:
        step = Step("PATCH", JOB, operations, PATCH)
        yield Case(f"operations {_said(operations)}", [MADE_JOB, step])
    yield from _applied()
    yield from _scaled()


def _applied() -> Iterator[Case]:
    head = {key: PLAIN[key] for key in ("apiVersion", "kind")}
    for number, (changes, query) in enumerate(
        (
            ({}, "force=maybe"),
            ({}, "force=1&force=0"),
            ({"metadata": {"name": "mnist", "uid": "x"}}, ""),
            ({"metadata": {"name": "mnist", "odd": 1}}, ""),
            ({"metadata": {"name": "other"}}, ""),
            ({"metadata": {"name": "mnist", "managedFields": []}}, ""),
            ({"metadata": {"name": "mnist", "managedFields": None}}, ""),
            ({"metadata": {"name": "mnist", "resourceVersion": "1"}}, ""),
            ({"metadata": None}, ""),
            ({"odd": 1}, ""),
            ({"spec": {"odd": 1}}, ""),
            ({"spec": {"replicaSpecs": [{"replicas": 2}]}}, ""),
            ({"spec": {"replicaSpecs": [PLAIN["spec"]["replicaSpecs"][0]] * 2}}, ""),
            ({"spec": {"runMode": {"pause": {"enabled": True}}}}, ""),
            ({"spec": {"runMode": {"pause": {"enabled": "x"}}}}, ""),
            ({"spec": None}, ""),
            ({"status": {"phase": 1}}, ""),
            ({"kind": ""}, ""),
            ({"kind": GONE}, ""),
        )
    ):
        body = changed({**head, "metadata": {"name": "mnist"}}, changes)
        step = Step("PATCH", f"{JOB}?fieldManager=me&{query}", body, APPLY)
        yield Case(f"applied {number} {_said(changes)} {query}".rstrip(), [MADE_JOB, step])
        yield Case(f"applied first {number} {_said(changes)} {query}".rstrip(), [step])


def _scaled() -> Iterator[Case]:
    made, scale = Step("POST", JOBS, ELASTIC), f"{JOB}/scale"
    whole = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "mnist"}}
    for number, step in enumerate(
        (
            Step("PUT", scale, {**whole, "spec": {"replicas": 4}}),
            Step("PUT", scale, {**whole, "spec": {"replicas": "4"}}),
            Step("PUT", scale, {**whole, "spec": {"replicas": -1}}),
            Step("PUT", scale, {**whole, "spec": {"replicas": 1 << 31}}),
            Step("PUT", scale, {**whole, "metadata": {"name": "other"}, "spec": {"replicas": 4}}),
            Step("PUT", scale, {**whole, "metadata": {"name": "mnist", "resourceVersion": "1"}}),
            Step("PUT", scale, {"spec": {"replicas": 4}}),
            Step("PUT", scale, {**whole, "kind": "Pod"}),
            Step("PUT", f"{scale}?dryRun=Some", {**whole, "spec": {"replicas": 4}}),
            Step("PATCH", scale, [{"op": "replace", "path": "/spec/replicas", "value": 4}], PATCH),
            Step("PATCH", scale, [{"op": "remove", "path": "/spec/replicas"}], PATCH),
            Step("PATCH", scale, {"spec": {"odd": 1}}, MERGE),
            Step("PATCH", scale, {}, STRATEGIC),
            Step("PATCH", scale, {}, JSON),
            Step("DELETE", scale),
            Step("POST", scale, whole),
        )
    ):
        name = f"scale {number} by {step.method} {_said(step.body)}"
        yield Case(name, [made, step, Step("GET", JOB)])


CORE, OF_OURS = [*_core()], [*_jobs()]
