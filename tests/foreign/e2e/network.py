"""Services, names and addresses: test/e2e/network and test/e2e/common/network."""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from typing import Any

from tests.foreign.e2e.lifecycle import PORT, server
from tests.foreign.e2e.pods import SLEEP
from tests.foreign.e2e.world import MERGE, PATIENCE_SECONDS, Object, Place, expects, served
from trainyard.kube.errors import NotFound

here = partial(expects, "network")
SLICES = "apis/discovery.k8s.io/v1|endpointslices"
NAMED = """exec python3 -uc '
import http.server, os, socket, sys, threading
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = (os.environ["HOSTNAME"] + " " + self.command + " " + self.path + "\\n").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_GET
def datagrams():
    server = socket.socket(type=socket.SOCK_DGRAM)
    server.bind(("", 8080))
    while True:
        data, sender = server.recvfrom(99)
        server.sendto(os.environ["HOSTNAME"].encode(), sender)
threading.Thread(target=datagrams, daemon=True).start()
http.server.ThreadingHTTPServer(("", 8080), Answer).serve_forever()
'"""
"""Says its name to whoever asks, over HTTP and UDP."""
ASK = """
import json, os, socket, struct, sys, time, urllib.request

def http(url):
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode().split()[0]

def udp(host, port):
    with socket.socket(type=socket.SOCK_DGRAM) as asking:
        asking.settimeout(3)
        asking.sendto(b"?", (host, port))
        return asking.recv(99).decode()

def look_up(name):
    try:
        found = socket.getaddrinfo(name, 80, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return []
    return sorted({each[4][0] for each in found})

def records(name, kind):
    nameserver = next(l.split()[1] for l in open("/etc/resolv.conf") if l.startswith("nameserver"))
    labels = b"".join(bytes([len(x)]) + x.encode() for x in name.split(".")) + b"\\0"
    with socket.socket(type=socket.SOCK_DGRAM) as asking:
        asking.settimeout(20)
        head = struct.pack(">6H", 7, 0x100, 1, 0, 0, 0)
        asking.sendto(head + labels + struct.pack(">2H", kind, 1), (nameserver, 53))
        return struct.unpack(">6H", asking.recv(4096)[:12])[3]

def until(ask):
    end = time.monotonic() + 200
    while True:
        try:
            found = ask()
            if found:
                return found
        except Exception as error:
            found = error
        assert time.monotonic() < end, found
        time.sleep(0.2)
"""
"""What the pods that ask have to ask with."""


async def ask(place: Place, script: str, **spec: Any) -> Any:
    """What a Python script prints as JSON, in a pod."""
    command = {"command": ["python3", "-c", f"{ASK}\n{script}"]}
    return json.loads(await place.run("", container=command, **spec))


async def answering(place: Place, *names: str, label: str = "web", **spec: Any) -> list[Object]:
    """Pods that say their names, once they are ready."""
    probe = {"tcpSocket": {"port": PORT}, "periodSeconds": 1}
    ports = [{"name": "http", "containerPort": PORT}]
    for name in names:
        parts = {"readinessProbe": probe, "ports": ports}
        await place.start(name, NAMED, container=parts, metadata={"labels": {"app": label}}, **spec)
    return [await place.ready(name) for name in names]


async def service(place: Place, name: str = "web", **spec: Any) -> Object:
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": PORT}], **spec}
    return await place.make("services", name, spec=spec)


async def endpoints(place: Place, name: str) -> set[tuple[str, int]]:
    """The addresses and ports behind a Service."""
    try:
        found = await place.ask("GET", f"endpoints/{name}")
    except NotFound:
        return set()
    return {
        (address["ip"], port["port"])
        for subset in found.get("subsets") or ()
        for address in subset.get("addresses") or ()
        for port in subset.get("ports") or ()
    }


async def has_endpoints(place: Place, name: str, wanted: set[tuple[str, int]]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while (found := await endpoints(place, name)) != wanted:
        assert time.monotonic() < end, f"{found} are behind {name}, not {wanted}"
        await asyncio.sleep(0.1)


def ip(pod: Object) -> str:
    return str(pod["status"]["podIP"])


def of_type(kind: str, alias: str = "") -> Object:
    """A change of a Service's type."""
    ports = [{"port": 80, "targetPort": PORT, "protocol": "TCP"}]
    if kind == "ExternalName":
        nothing = {"clusterIP": "", "clusterIPs": None, "ports": None}
        return {"spec": {"type": kind, "externalName": alias, **nothing}}
    return {"spec": {"type": kind, "externalName": None, "ports": ports}}


# Services.


async def changed(first: str, then: str, place: Place) -> None:
    await answering(place, "a")
    here_too = await service(place, "target")
    alias = f"target.{place.namespace}.svc.cluster.local"
    if first == "ExternalName":
        spec = {"type": first, "externalName": alias, "selector": {"app": "web"}}
        made = await place.make("services", "web", spec=spec)
    else:
        made = await service(place, type=first)
    assert bool(made["spec"].get("clusterIP")) is (first != "ExternalName")
    new = await place.ask("PATCH", "services/web", of_type(then, alias), MERGE)
    wanted = here_too if then == "ExternalName" else new
    address = wanted["spec"]["clusterIP"]
    assert bool(new["spec"].get("clusterIP")) is (then != "ExternalName")
    assert bool(new["spec"].get("ports", [{}])[0].get("nodePort")) is (then == "NodePort")
    script = f"print(json.dumps(until(lambda: {address!r} in look_up('web'))))"
    assert await ask(place, script) is True
    if then != "ExternalName":
        script = "print(json.dumps(until(lambda: http('http://web'))))"
        assert await ask(place, script) == "a"


for _first, _then in (
    ("ClusterIP", "ExternalName"),
    ("ExternalName", "ClusterIP"),
    ("ExternalName", "NodePort"),
    ("NodePort", "ExternalName"),
):
    here(f"Services should be able to change the type from {_first} to {_then}")(
        partial(changed, _first, _then)
    )


@here("Services should be able to create a functioning NodePort service")
async def _node_port(place: Place) -> None:
    await answering(place, "a")
    made = await service(place, type="NodePort")
    port = made["spec"]["ports"][0]["nodePort"]
    address = made["spec"]["clusterIP"]
    urls = ["http://web", f"http://{address}"]
    script = f"print(json.dumps([until(lambda: http(url)) for url in {urls}]))"
    assert await ask(place, script) == ["a", "a"]
    host = place.world.pods[place.namespace, "a"]["status"]["hostIP"]
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            found = await reader.read()
            writer.close()
            if b"a GET /" in found:
                return
        except OSError as error:
            found = str(error).encode()
        assert time.monotonic() < end, found
        await asyncio.sleep(0.2)


async def affinity(kind: str, switch: bool, place: Place) -> None:
    await answering(place, "a", "b", "c")
    await service(place, sessionAffinity="ClientIP", type=kind)
    many = "sorted({until(lambda: http('http://web')) for _ in range(30)})"
    script = f"until(lambda: http('http://web')); print(json.dumps({many}))"
    assert len(await ask(place, script)) == 1
    if switch:
        await place.patch("services/web", {"spec": {"sessionAffinity": "None"}})
        assert len(await ask(place, script)) > 1


for _name, _kind in (
    ("service with type clusterIP", "ClusterIP"),
    ("NodePort service", "NodePort"),
):
    here(f"Services should have session affinity work for {_name}")(partial(affinity, _kind, False))
    here(f"Services should be able to switch session affinity for {_name}")(
        partial(affinity, _kind, True)
    )


@here("Services should complete a service status lifecycle")
async def _status(place: Place) -> None:
    await service(place)
    new = {"type": "example.com/Checked", "status": "True", "reason": "Test", "message": "m"}
    new["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    change = {"status": {"conditions": [new]}}
    found = await place.ask("PATCH", "services/web/status", change, MERGE)
    assert found["status"]["conditions"][0]["reason"] == "Test"
    found["status"]["conditions"][0]["reason"] = "Other"
    await place.ask("PUT", "services/web/status", found)
    read = await place.ask("GET", "services/web/status")
    assert read["status"]["conditions"][0]["reason"] == "Other"
    found = await place.patch("services/web", {"metadata": {"labels": {"patched": "yes"}}})
    assert found["metadata"]["labels"] == {"patched": "yes"}


@here("Services should delete a collection of services")
async def _collection(place: Place) -> None:
    for name in ("a", "b", "c"):
        labels = {"of": "keep" if name == "c" else "test"}
        ports = {"ports": [{"port": 80}]}
        await place.make("services", name, metadata={"labels": labels}, spec=ports)
    await place.ask("DELETE", "services?labelSelector=of=test")
    left = await place.ask("GET", "services")
    assert [each["metadata"]["name"] for each in left["items"]] == ["c"]


@here("Services should find a service from listing all namespaces")
async def _listed(place: Place) -> None:
    found = await place.plainly("GET", "/api/v1/services")
    names = [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in found["items"]]
    assert ("default", "kubernetes") in names


@here("Services should provide secure master service")
async def _secure(place: Place) -> None:
    found = await place.plainly("GET", "/api/v1/namespaces/default/services/kubernetes")
    assert ("https", 443) in [(each.get("name"), each["port"]) for each in found["spec"]["ports"]]


@here("Services should serve a basic endpoint from pods")
async def _basic(place: Place) -> None:
    await service(place)
    await has_endpoints(place, "web", set())
    (a,) = await answering(place, "a")
    await has_endpoints(place, "web", {(ip(a), PORT)})
    (b,) = await answering(place, "b")
    await has_endpoints(place, "web", {(ip(a), PORT), (ip(b), PORT)})
    for name, left in (("a", {(ip(b), PORT)}), ("b", set())):
        await place.ask("DELETE", f"pods/{name}")
        await has_endpoints(place, "web", left)


@here("Services should serve multiport endpoints from pods")
async def _several(place: Place) -> None:
    ports = [
        {"name": "one", "port": 80, "targetPort": "one"},
        {"name": "two", "port": 81, "targetPort": "two"},
    ]
    await service(place, ports=ports)
    pods = []
    for name, number in (("one", 100), ("two", 101)):
        parts = {"ports": [{"name": name, "containerPort": number}]}
        await place.start(name, SLEEP, container=parts, metadata={"labels": {"app": "web"}})
        pods.append(await place.ready(name))
    both = {(ip(pods[0]), 100), (ip(pods[1]), 101)}
    await has_endpoints(place, "web", both)
    await place.ask("DELETE", "pods/one")
    await has_endpoints(place, "web", {(ip(pods[1]), 101)})
    await place.ask("DELETE", "pods/two")
    await has_endpoints(place, "web", set())


@here("Services should serve endpoints on same port and different protocols")
async def _protocols(place: Place) -> None:
    await answering(place, "a")
    kinds = [
        {"name": kind.lower(), "port": 80, "protocol": kind, "targetPort": PORT}
        for kind in ("TCP", "UDP")
    ]
    made = await service(place, ports=kinds)
    address = made["spec"]["clusterIP"]
    script = (
        f"print(json.dumps([until(lambda: http('http://{address}')), "
        f"until(lambda: udp('{address}', 80))]))"
    )
    assert await ask(place, script) == ["a", "a"]
    for left, gone in (
        (0, f"not fails(lambda: udp('{address}', 80))"),
        (1, f"not fails(lambda: http('http://{address}'))"),
    ):
        await place.patch("services/web", {"spec": {"ports": [kinds[left]]}})
        lost = (
            "def fails(ask):\n    try:\n        ask()\n    except OSError:\n        return False\n"
            "    return True\n"
        )
        stays = f"http('http://{address}')" if left == 0 else f"udp('{address}', 80)"
        script = f"{lost}until(lambda: {gone})\nprint(json.dumps(until(lambda: {stays})))"
        assert await ask(place, script) == "a"


@here("Services should test the lifecycle of an Endpoint")
async def _endpoint(place: Place) -> None:
    subsets = [{"addresses": [{"ip": "10.0.0.24"}], "ports": [{"name": "http", "port": 80}]}]
    labels = {"of": "test"}
    made = await place.make("endpoints", "e", subsets=subsets, metadata={"labels": labels})
    made["metadata"]["labels"]["updated"] = "yes"
    await place.ask("PUT", "endpoints/e", made)
    subsets[0]["addresses"] = [{"ip": "10.0.0.25"}]
    await place.patch("endpoints/e", {"subsets": subsets})
    found = await place.ask("GET", "endpoints?labelSelector=updated=yes")
    assert found["items"][0]["subsets"][0]["addresses"][0]["ip"] == "10.0.0.25"
    await place.ask("DELETE", "endpoints?labelSelector=of=test")
    assert not (await place.ask("GET", "endpoints?labelSelector=of=test"))["items"]


@here("Service endpoints latency should not be very high")
async def _latency(place: Place) -> None:
    """Ten, and no verdict on how soon."""
    (a,) = await answering(place, "a")
    for number in range(10):
        await service(place, f"web-{number}")
        await has_endpoints(place, f"web-{number}", {(ip(a), PORT)})


@here("Pods should contain environment variables for services")
async def _variables(place: Place) -> None:
    made = await service(place, "fooservice", ports=[{"port": 8765, "targetPort": PORT}])
    names = [
        *("SERVICE_HOST", "SERVICE_PORT", "PORT", "PORT_8765_TCP_PORT", "PORT_8765_TCP_PROTO"),
        *("PORT_8765_TCP", "PORT_8765_TCP_ADDR"),
    ]
    text = await place.run("echo " + " ".join(f"$FOOSERVICE_{name}" for name in names))
    address = made["spec"]["clusterIP"]
    url = f"tcp://{address}:8765"
    assert text.split() == [address, "8765", url, "8765", "tcp", url, address]


# Addresses.


@here("Networking Granular Checks: Pods should function for intra-pod communication: http")
async def _by_http(place: Place) -> None:
    pods = await answering(place, "a", "b")
    urls = [f"http://{ip(pod)}:{PORT}" for pod in pods]
    assert await ask(place, f"print(json.dumps([http(url) for url in {urls}]))") == ["a", "b"]


@here("Networking Granular Checks: Pods should function for intra-pod communication: udp")
async def _by_udp(place: Place) -> None:
    addresses = [ip(pod) for pod in await answering(place, "a", "b")]
    script = f"print(json.dumps([until(lambda: udp(each, {PORT})) for each in {addresses}]))"
    assert await ask(place, script) == ["a", "b"]


async def from_node(kind: str, place: Place) -> None:
    (a,) = await answering(place, "a")
    asked = f"http('http://{ip(a)}:{PORT}')" if kind == "http" else f"udp('{ip(a)}', {PORT})"
    assert await ask(place, f"print(json.dumps(until(lambda: {asked})))", hostNetwork=True) == "a"


for _kind in ("http", "udp"):
    here(f"Networking Granular Checks: Pods should function for node-pod communication: {_kind}")(
        partial(from_node, _kind)
    )


@here(
    "HostPort validates that there is no conflict between pods with same hostPort but "
    "different hostIP and protocol"
)
async def _host_ports(place: Place) -> None:
    for name, host, protocol in (
        ("one", "127.0.0.1", "TCP"),
        ("two", "127.0.0.2", "TCP"),
        ("three", "127.0.0.2", "UDP"),
    ):
        port = {"containerPort": PORT, "hostPort": 54323, "hostIP": host, "protocol": protocol}
        await place.start(name, NAMED, container={"ports": [port]})
        await place.ready(name)
    reader, writer = await asyncio.open_connection("127.0.0.1", 54323)
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    assert b"one GET" in await reader.read()
    writer.close()


# Names.

BY_NAME_SERVER = {
    "DNS should provide DNS for services",
    "DNS should resolve DNS of partial qualified names for services",
    "DNS should provide DNS for ExternalName services",
    "DNS should support configurable pod DNS nameservers",
}
"""Only where pods have one, which needs the way out (decision 248)."""


async def found_names(place: Place, names: list[str], **spec: Any) -> dict[str, list[str]]:
    script = f"print(json.dumps({{each: until(lambda: look_up(each)) for each in {names}}}))"
    return dict(await ask(place, script, **spec))


def qualified(name: str, namespace: str) -> list[str]:
    return [
        name,
        f"{name}.{namespace}",
        f"{name}.{namespace}.svc",
        f"{name}.{namespace}.svc.cluster.local",
    ]


@here("DNS should provide DNS for the cluster")
async def _cluster(place: Place) -> None:
    names = qualified("kubernetes", "default")[1:]
    script = f"print(json.dumps([look_up(each) for each in {names}]))"
    assert all(await ask(place, script))


@here("DNS should provide /etc/hosts entries for the cluster")
async def _own_names(place: Place) -> None:
    await service(place, "sub", clusterIP="None")
    spec = {"hostname": "querier", "subdomain": "sub"}
    await place.start(
        "p", f"getent hosts querier querier.sub.{place.namespace}.svc.cluster.local", **spec
    )
    pod = await place.ended("p")
    lines = (await place.log("p")).splitlines()
    assert [line.split()[0] for line in lines] == [ip(pod)] * 2, lines


async def of_services(qualify: slice, place: Place) -> None:
    pods = await answering(place, "a")
    ports = [{"name": "http", "port": PORT, "protocol": "TCP"}]
    made = await service(place, "web", ports=ports)
    await service(place, "headless", clusterIP="None", ports=ports)
    addresses = {"web": [made["spec"]["clusterIP"]], "headless": [ip(pods[0])]}
    for name, wanted in addresses.items():
        names = qualified(name, place.namespace)[qualify]
        assert await found_names(place, names) == dict.fromkeys(names, wanted)
    names = [f"_http._tcp.{name}.{place.namespace}.svc.cluster.local" for name in addresses]
    script = f"print(json.dumps([until(lambda: records(each, 33)) for each in {names}]))"
    assert await ask(place, script) == [1, 1]


here("DNS should provide DNS for services")(partial(of_services, slice(0, 4)))
here("DNS should resolve DNS of partial qualified names for services")(
    partial(of_services, slice(0, 3))
)


@here("DNS should provide DNS for ExternalName services")
async def _alias(place: Place) -> None:
    spec = {"type": "ExternalName", "externalName": "foo.example.com"}
    await place.make("services", "web", spec=spec)
    name = f"web.{place.namespace}.svc.cluster.local"
    assert await ask(place, f"print(json.dumps(until(lambda: records({name!r}, 5))))") == 1


async def of_pods(names: list[str], place: Place) -> None:
    await service(place, "sub", clusterIP="None")
    (pod,) = await answering(place, "p", hostname="querier", subdomain="sub")
    wanted = [name.format(place.namespace) for name in names]
    assert await found_names(place, wanted) == {each: [ip(pod)] for each in wanted}


here("DNS should provide DNS for pods for Hostname")(
    partial(of_pods, ["querier.sub", "querier.sub.{}.svc.cluster.local"])
)
here("DNS should provide DNS for pods for Subdomain")(
    partial(of_pods, ["sub.{}.svc.cluster.local"])
)


@here("DNS should support configurable pod DNS nameservers")
async def _configured(place: Place) -> None:
    config = {"nameservers": ["1.1.1.1"], "searches": ["resolv.conf.local"]}
    text = await place.run("cat /etc/resolv.conf", dnsPolicy="None", dnsConfig=config)
    assert ["nameserver", "1.1.1.1"] in [line.split() for line in text.splitlines()]
    assert ["search", "resolv.conf.local"] in [line.split() for line in text.splitlines()]


# EndpointSlices.


async def slices(place: Place, name: str) -> list[Object]:
    found = await place.ask("GET", f"{SLICES}?labelSelector=kubernetes.io/service-name={name}")
    return list(found["items"])


async def has_slices(place: Place, name: str, wanted: set[str]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = await slices(place, name)
        addresses = {
            address
            for each in found
            for endpoint in each["endpoints"] or ()
            for address in endpoint["addresses"]
        }
        if addresses == wanted:
            return
        assert time.monotonic() < end, f"{addresses}, not {wanted}"
        await asyncio.sleep(0.1)


@here("EndpointSlice should create Endpoints and EndpointSlices for Pods matching a Service")
async def _sliced(place: Place) -> None:
    await service(place)
    pods = await answering(place, "a", "b")
    addresses = {ip(pod) for pod in pods}
    await has_slices(place, "web", addresses)
    await has_endpoints(place, "web", {(each, PORT) for each in addresses})
    for each in await slices(place, "web"):
        assert {"Pod"} == {endpoint["targetRef"]["kind"] for endpoint in each["endpoints"]}


@here(
    "EndpointSlice should create and delete Endpoints and EndpointSlices for a Service with a "
    "selector specified"
)
async def _made_and_gone(place: Place) -> None:
    await service(place)
    end = time.monotonic() + PATIENCE_SECONDS
    for there in (True, False):
        while True:
            both = (await slices(place, "web"), (await place.ask("GET", "endpoints"))["items"])
            if [bool(each) for each in both] == [there, there]:
                break
            assert time.monotonic() < end, both
            await asyncio.sleep(0.1)
        if there:
            await place.ask("DELETE", "services/web")


@here("EndpointSlice should have Endpoints and EndpointSlices pointing to API Server")
async def _of_server(place: Place) -> None:
    default = Place(place.world, "default")
    assert await endpoints(default, "kubernetes")
    assert await slices(default, "kubernetes")


@here("EndpointSlice should support creating EndpointSlice API operations")
async def _slice(place: Place) -> None:
    parts = {"addressType": "IPv4", "endpoints": [], "metadata": {"labels": {"of": "test"}}}
    made = await place.make(SLICES, "s", **parts)
    made["metadata"]["annotations"] = {"updated": "yes"}
    await place.ask("PUT", f"{SLICES}/s", made)
    found = await place.patch(f"{SLICES}/s", {"metadata": {"annotations": {"patched": "yes"}}})
    assert found["metadata"]["annotations"] == {"updated": "yes", "patched": "yes"}
    await place.ask("DELETE", f"{SLICES}?labelSelector=of=test")
    assert not (await place.ask("GET", f"{SLICES}?labelSelector=of=test"))["items"]


@here(
    "EndpointSliceMirroring should mirror a custom Endpoints resource through create "
    "update and delete"
)
async def _mirrored(place: Place) -> None:
    await service(place, selector=None)
    subsets = [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80}]}]
    await place.make("endpoints", "web", subsets=subsets)
    await has_slices(place, "web", {"10.1.2.3"})
    subsets[0]["addresses"] = [{"ip": "10.2.3.4"}]
    await place.patch("endpoints/web", {"subsets": subsets})
    await has_slices(place, "web", {"10.2.3.4"})
    await place.ask("DELETE", "endpoints/web")
    await has_slices(place, "web", set())


# Proxies.


async def proxied(below: str, place: Place) -> None:
    await answering(place, "a")
    await service(place)
    end = time.monotonic() + PATIENCE_SECONDS
    for base in (f"pods/a:{PORT}/proxy", "services/web/proxy"):
        for method in ("GET", "DELETE", "OPTIONS", "PATCH", "POST", "PUT"):
            while True:
                try:
                    text = await place.text(method, f"{base}{below}")
                    break
                except Exception:
                    if time.monotonic() > end:
                        raise
                    await asyncio.sleep(0.2)
            assert text.split()[:2] == ["a", method]
            assert text.split()[2] == below


_VALID = "Proxy version v1 A set of valid responses are returned for both pod and service"
here(f"{_VALID} Proxy")(partial(proxied, "/"))
here(f"{_VALID} ProxyWithPath")(partial(proxied, "/some/path"))


@here("Proxy version v1 should proxy through a service and a pod")
async def _through(place: Place) -> None:
    await server(place)
    ports = [{"name": "http", "port": 80, "targetPort": PORT}]
    await service(place, "server", selector={"app": "server"}, ports=ports)
    await place.patch("pods/server", {"metadata": {"labels": {"app": "server"}}})
    pod = place.world.pods[place.namespace, "server"]
    await has_endpoints(place, "server", {(ip(pod), PORT)})
    for path in ("pods/server:8080", "pods/http:server:8080", "services/server:http"):
        assert "listing" in await place.text("GET", f"{path}/proxy/"), path


# Kinds that are not served.

here("Ingress API should support creating Ingress API operations")(
    served("networking.k8s.io/v1", "ingresses")
)
here("IngressClass API should support creating IngressClass API operations")(
    served("networking.k8s.io/v1", "ingressclasses")
)
