"""Ranks that do not find each other, and servers that are not reached."""

# ruff: noqa: E501

from __future__ import annotations

from tests.unit.diagnosis.public_failures.row import NOT_THE_CODE, PublicFailure, ranks

_SERVER = """\
import http.server, threading, urllib.request
class Hub(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error({status})
    def log_message(self, *words):
        pass
hub = http.server.HTTPServer(("127.0.0.1", 0), Hub)
threading.Thread(target=hub.serve_forever, daemon=True).start()
weights = urllib.request.urlopen(f"http://127.0.0.1:{{hub.server_port}}/model.safetensors")
"""
_MEET = """\
import datetime, os, time, torch.distributed as dist
os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
{before}
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=8))
"""


def _meets(name: str, before: str, *rest: object, **more: object) -> PublicFailure:
    """Two replicas that do not meet."""
    return PublicFailure(name, _MEET.format(before=before), *rest, replicas=2, **more)  # type: ignore[arg-type]


ROWS = (
    _meets("a rank that never comes", 'if os.environ["RANK"] == "1": time.sleep(3600)',
           (r"1 (?:of|/) ?2|wait(?:ed)? in vain|not all",), "dist.init_process_group",
           (r"all ranks|logs of (?:all|the others)",), (NOT_THE_CODE,)),
    _meets("a name of the first rank that nobody knows",
           'if os.environ["RANK"] == "1": os.environ["MASTER_ADDR"] = "no-such-host.invalid"',
           (r"no-such-host\.invalid",), "dist.init_process_group", (r"address|MASTER_ADDR",),
           (NOT_THE_CODE,), who="worker-1"),
    _meets("another port than the first rank's",
           'if os.environ["RANK"] == "1": os.environ["MASTER_PORT"] = "9"',
           (r"127\.0\.0\.1|connect|reach|1 (?:of|/) ?2",), "dist.init_process_group",
           (r"MASTER_PORT|address|port|all ranks",), (NOT_THE_CODE,), who="worker-1"),
    PublicFailure("a server whose name nobody knows", """\
import urllib.request
weights = urllib.request.urlopen("http://no-such-hub.invalid/model.safetensors")
""", (r"server could not be reached|name",), "weights = ", (r"address|network",), (NOT_THE_CODE,)),
    PublicFailure("a connection that is refused", """\
import socket
tracker = socket.create_connection(("127.0.0.1", 9))
""", (r"Connection refused", r"not there|reach"), "tracker = ", (r"server runs|address|reached",),
           (NOT_THE_CODE,)),
    PublicFailure("a hub that is overloaded", _SERVER.format(status=503), (r"503",), "weights = ",
           (r"again|later|server",), (NOT_THE_CODE,)),
    PublicFailure("a hub that wants a token", _SERVER.format(status=401), (r"401",), "weights = ",
           (r"token|log in|credentials",), (NOT_THE_CODE,)),
    PublicFailure("a certificate that nobody here knows", """\
import ssl
def connect():
    raise ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate in certificate chain (_ssl.c:1006)")
connect()
""", (r"certificate verify failed",), "raise ssl", (r"certificate|SSL_CERT_FILE|CA",),
           (NOT_THE_CODE,)),
    PublicFailure("a network interface that is not there", """\
import os, torch.distributed as dist
os.environ["GLOO_SOCKET_IFNAME"] = "eth9"
dist.init_process_group("gloo")
""", (r"eth9",), "dist.init_process_group", (r"GLOO_SOCKET_IFNAME|interface",), (NOT_THE_CODE,)),
    ranks("a rank that hangs", """\
group = dist.new_group(timeout=datetime.timedelta(seconds=5))
if rank == 1:
    time.sleep(60)
dist.all_reduce(x, group=group)
""", (r"waited in vain|Timed out",), "dist.all_reduce(x, group",
           (r"all ranks|the others",), (NOT_THE_CODE,), who="rank 0 on worker-0"),
)  # fmt: skip
