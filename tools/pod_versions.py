"""Write or verify ``src/trainyard/schema/data/versions.json``: since which Kubernetes there are the
fields of pods and of the core kinds that a manifest may hold.

The schemas of Kubernetes 1.25 and newer are those of the installed ``kubernetes-validate``; older
ones are in a release of it that pip downloads for as long as this runs. What is written tells of
fields that are newer than the oldest version and are still there in the newest.

Usage: ``python -m tools.pod_versions [--check]``
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

from tools.pod_schema import API, DATA, ROOTS, newest_schema, references, short

OLDEST = 20
_OLDER = ("kubernetes-validate==1.24.0", range(OLDEST, 25))
"""A release, and what is taken from it."""
_FILES = ("pod_template.json", "core.json")
Definitions = dict[str, Any]
"""Of one version, by their full names."""


def installed() -> dict[int, Definitions]:
    """By minor version."""
    root = files("kubernetes_validate") / "kubernetes-json-schema"
    found = {}
    for folder in root.iterdir():
        if folder.name.endswith("-local-strict"):
            text = (folder / "_definitions.json").read_text()
            found[int(folder.name.split(".")[1])] = json.loads(text)["$defs"]
    return found


def downloaded() -> dict[int, Definitions]:
    """The same of older versions."""
    release, minors = _OLDER
    wanted = {f"v1.{minor}.0-local-strict": minor for minor in minors}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:")
        subprocess.run((*pip, release, "--dest", folder), check=True)
        (archive,) = Path(folder).iterdir()
        with tarfile.open(archive) as packed:
            for name in packed.getnames():
                place = Path(name)
                if place.name == "_definitions.json" and place.parent.name in wanted:
                    text = packed.extractfile(name)
                    assert text is not None
                    found[wanted[place.parent.name]] = json.load(text)["definitions"]
    return found


def fields_of(newest: Definitions, older: Definitions) -> dict[str, set[str]]:
    """The fields that an older version has, by the newest name of what has them.

    Definitions are paired by how they are reached, since some have been renamed.
    """
    pairs = {(API + root, API + root) for file in _FILES for root in ROOTS[file]}
    pending, found = list(pairs), dict[str, set[str]]()
    while pending:
        new, old = pending.pop()
        fields, known = (
            of[name].get("properties", {}) for of, name in ((newest, new), (older, old))
        )
        found.setdefault(short(new), set()).update(fields.keys() & known.keys())
        for field in fields.keys() & known.keys():
            for pair in zip(references(fields[field]), references(known[field]), strict=False):
                if pair not in pairs:
                    pairs.add(pair)
                    pending.append(pair)
    return found


def since(versions: dict[int, Definitions]) -> dict[str, int]:
    """The first version of every field that came after its definition, as ``Definition.field``."""
    newest = versions[max(versions)]
    known = {minor: fields_of(newest, older) for minor, older in sorted(versions.items())}
    found = {}
    for owner, fields in known[max(versions)].items():
        came = min(minor for minor, of in known.items() if owner in of)
        for field in fields:
            first = min(minor for minor, of in known.items() if field in of.get(owner, ()))
            if first > came:
                found[f"{owner}.{field}"] = first
    return found


def build() -> str:
    """The text of the file."""
    versions = {**downloaded(), **installed()}
    if sorted(versions) != list(range(OLDEST, max(versions) + 1)):
        raise SystemExit(f"versions are missing: there are {sorted(versions)}")
    document = {
        "$comment": f"Kubernetes 1.{OLDEST} to {newest_schema()[0]}; by tools/pod_versions.py",
        "fields": dict(sorted(since(versions).items())),
        "versions": [min(versions), max(versions)],
    }
    return json.dumps(document, indent=0) + "\n"


def main() -> int:
    """Write the file, or with ``--check`` say that it is stale."""
    text, path = build(), DATA / "versions.json"
    if "--check" not in sys.argv[1:]:
        path.write_text(text)
    elif path.read_text() != text:
        print(f"{path} is stale; run: python -m tools.pod_versions")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
