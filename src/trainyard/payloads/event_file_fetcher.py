"""Brings event files from object stores and web servers into a folder, over and over.

TensorBoard reads object stores itself only where its image has the right packages, and stops
reading everything when one store does not answer. This runs beside it, in the same image, which is
given its text. Standard library, Python 3.8.

Arguments: the folder, then addresses (`s3://bucket/prefix/`, `https://…`). Credentials are in the
environment, as for other tools: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
AWS_REGION, AWS_ENDPOINT_URL or S3_ENDPOINT, S3_USE_HTTPS, S3_VERIFY_SSL. Ends with 1 and a
sentence when something cannot be had; whoever runs it starts it again.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http.client import HTTPResponse
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit
from xml.etree import ElementTree

FETCHED = ".fetched"
"""File that is there once everything has been fetched."""
SECONDS = 20.0
TIMEOUT_SECONDS = 60.0
CHUNK = 1 << 20
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


class Credentials(NamedTuple):
    """Who asks; `access` "" for nobody in particular."""

    access: str
    secret: str
    token: str
    region: str


class FetchError(Exception):
    """Something that cannot be had, in a sentence."""


def signature_headers(
    url: str, headers: Mapping[str, str], keys: Credentials, stamp: str
) -> dict[str, str]:
    """`headers` and those that sign a GET of `url` with all of them, at `20130524T000000Z`.

    https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
    """
    parts = urlsplit(url)
    sent = {"x-amz-content-sha256": EMPTY_SHA256, "x-amz-date": stamp, **headers}
    if keys.token:
        sent["x-amz-security-token"] = keys.token
    signed = {name.lower(): value.strip() for name, value in sent.items()}
    signed["host"] = parts.netloc
    names = ";".join(sorted(signed))
    query = sorted(
        (quote(name, safe="-_.~"), quote(value, safe="-_.~"))
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
    )
    request = "\n".join(
        [
            "GET",
            parts.path or "/",
            "&".join("=".join(pair) for pair in query),
            *(f"{name}:{signed[name]}" for name in sorted(signed)),
            "",
            names,
            EMPTY_SHA256,
        ]
    )
    scope = f"{stamp[:8]}/{keys.region}/s3/aws4_request"
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, digest])
    key = ("AWS4" + keys.secret).encode()
    for part in (*scope.split("/"), text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    who = f"AWS4-HMAC-SHA256 Credential={keys.access}/{scope}"
    sent["Authorization"] = f"{who}, SignedHeaders={names}, Signature={key.hex()}"
    return sent


class ObjectStore:
    """An object store, as the environment describes it."""

    def __init__(self, env: Mapping[str, str]) -> None:
        region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1"
        self.keys = Credentials(
            env.get("AWS_ACCESS_KEY_ID", ""),
            env.get("AWS_SECRET_ACCESS_KEY", ""),
            env.get("AWS_SESSION_TOKEN", ""),
            region,
        )
        endpoint = (
            env.get("AWS_ENDPOINT_URL_S3")
            or env.get("AWS_ENDPOINT_URL")
            or env.get("S3_ENDPOINT")
            or f"https://s3.{region}.amazonaws.com"
        )
        if "://" not in endpoint:
            plain = env.get("S3_USE_HTTPS", "1").lower() in ("0", "false")
            endpoint = ("http://" if plain else "https://") + endpoint
        self.endpoint = endpoint.rstrip("/")
        self.context = ssl.create_default_context()
        if env.get("S3_VERIFY_SSL", "1").lower() in ("0", "false"):
            self.context = ssl._create_unverified_context()

    def open(self, url: str, headers: Mapping[str, str]) -> HTTPResponse:
        """The answer to a GET."""
        sent = dict(headers)
        if self.keys.access:
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            sent = signature_headers(url, headers, self.keys, stamp)
        request = urllib.request.Request(url, headers=sent)
        answer: HTTPResponse = urllib.request.urlopen(
            request, timeout=TIMEOUT_SECONDS, context=self.context
        )
        return answer

    def objects(self, bucket: str, prefix: str) -> Iterator[tuple[str, int]]:
        """Keys under the prefix, with their sizes."""
        query = {"list-type": "2", "prefix": prefix}
        while True:
            asked = urlencode(query, quote_via=quote)
            url = f"{self.endpoint}/{quote(bucket)}?{asked}"
            with self.open(url, {}) as answer:
                page = ElementTree.fromstring(answer.read())
            space = page.tag[: page.tag.rfind("}") + 1]
            for entry in page.iter(space + "Contents"):
                yield entry.findtext(space + "Key") or "", int(entry.findtext(space + "Size") or 0)
            token = page.findtext(space + "NextContinuationToken")
            if not token:
                return
            query["continuation-token"] = token

    def url(self, bucket: str, key: str) -> str:
        """Where an object is."""
        return f"{self.endpoint}/{quote(bucket)}/{quote(key, safe='/-_.~')}"


def is_shown(key: str) -> bool:
    """Whether TensorBoard reads a file of this name; checkpoints beside it are not fetched."""
    return "tfevents" in key.rpartition("/")[2] or "/plugins/" in key


def fetch_new_bytes(store: ObjectStore, url: str, path: str) -> None:
    """Add to a file what it lacks: event files only grow, and TensorBoard keeps them open."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    have = os.path.getsize(path) if os.path.exists(path) else 0
    try:
        answer = store.open(url, {"Range": f"bytes={have}-"} if have else {})
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing beyond what is there
            return
        raise
    with answer, open(path, "ab") as file:
        skip = have if answer.status != 206 else 0
        while True:
            data = answer.read(CHUNK)
            if not data:
                return
            file.write(data[skip:])
            skip = max(0, skip - len(data))


def fetch(store: ObjectStore, address: str, folder: str) -> None:
    """Everything at one address."""
    parts = urlsplit(address)
    if parts.scheme != "s3":
        name = os.path.basename(parts.path) or "log"
        if "tfevents" not in name:
            name = "events.out.tfevents." + name
        fetch_new_bytes(ObjectStore({}), address, os.path.join(folder, name))
        return
    prefix = parts.path.lstrip("/")
    for key, size in store.objects(parts.netloc, prefix):
        inner = os.path.normpath(key[len(prefix) :].lstrip("/") or os.path.basename(key))
        path = os.path.join(folder, inner)
        if not is_shown(key) or inner.startswith(("..", "/")):
            continue
        if not os.path.exists(path) or os.path.getsize(path) < size:
            fetch_new_bytes(store, store.url(parts.netloc, key), path)


def label(address: str) -> str:
    """A folder name for an address; that of a web page leaves its file out."""
    parts = urlsplit(address)
    path = parts.path if parts.scheme == "s3" else os.path.dirname(parts.path)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", parts.netloc + path).strip("-.") or "logs"


def fetch_all(folder: str, addresses: list[str], env: Mapping[str, str]) -> None:
    """One round; raises Problem."""
    store = ObjectStore(env)
    for address in addresses:
        try:
            fetch(store, address, os.path.join(folder, label(address)))
        except (OSError, ValueError, ElementTree.ParseError) as error:
            raise FetchError(f"cannot fetch {address}: {error}") from None


def main() -> None:
    """Until something goes wrong."""
    folder, *addresses = sys.argv[1:]
    done = os.path.join(folder, FETCHED)
    if os.path.exists(done):
        os.unlink(done)
    while True:
        try:
            fetch_all(folder, addresses, os.environ)
        except FetchError as problem:
            sys.exit(str(problem))
        with open(done, "w"):
            pass
        time.sleep(SECONDS)


if __name__ == "__main__":
    main()
