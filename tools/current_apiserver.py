"""Build a server of custom resources of current Kubernetes, from Debian's packages.

``python tools/current_apiserver.py build``, or ``make cluster CURRENT=1``. It serves definitions
and the kinds that they define (validation, CEL, defaults, server-side apply) and admission
policies by the libraries of Kubernetes 1.36, and passes everything else on to the older server of
``tools/control_plane.py``: Debian does not package what serves the core kinds. The program is
``tools/current_apiserver``; it is kept beside the older one. Ten minutes on two cores, 3 GB while
it builds.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tools.control_plane import CACHE

from tools import debian

_RECIPE = 1  # to be raised with every change of what is built, or of how
VERSION = (1, 36)
BUILT = CACHE / f"current-apiserver-{_RECIPE}"
PROGRAM = BUILT / "current-apiserver"
ETCD = BUILT / "etcd"
_GO = "1.26"
_PACKAGES = (
    "golang-k8s-apiextensions-apiserver-dev",
    "golang-k8s-apiserver-dev",
    f"golang-{_GO}-go",
    f"golang-{_GO}-src",
    "etcd-server",
)
_FACTS = "k8s.io/component-base/version"
_SOURCE = Path(__file__).with_suffix("")


def build() -> None:
    """Build it, unless it is there."""
    if PROGRAM.exists():
        return
    debian.require()
    BUILT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILT, prefix="build-") as name:
        folder = Path(name)
        packages, system = folder / "packages", folder / "system"
        packages.mkdir()
        apt = debian.Apt(folder / "apt", suite="sid")
        names = apt.needed_for(*_PACKAGES)
        wanted = [name for name in names if name.startswith(("golang", "etcd-server"))]
        apt.get("download", *wanted, cwd=packages)
        debian.unpack(packages, system)
        (server,) = packages.glob("golang-k8s-apiserver-dev_*.deb")
        _compile(system, folder, server.name.split("_")[1].partition("-")[0])
        shutil.copy2(system / "usr/bin/etcd", ETCD)
        shutil.copy2(folder / PROGRAM.name, PROGRAM)


def _compile(system: Path, folder: Path, version: str) -> None:
    """`version` is ``0.36.4``, that of the libraries of Kubernetes 1.36.4."""
    _, minor, patch = version.split(".")
    if int(minor) != VERSION[1]:
        sys.exit(f"Debian has Kubernetes 1.{minor} now: set VERSION, and see what it changes")
    facts = {"gitVersion": f"v1.{minor}.{patch}", "gitMajor": "1", "gitMinor": minor}
    flags = " ".join(f"-X {_FACTS}.{name}={value}" for name, value in facts.items())
    libraries = system / "usr/share/gocode"
    place = libraries / "src/trainyard/current"
    shutil.copytree(_SOURCE, place)
    root = system / f"usr/lib/go-{_GO}"
    debian.run(
        *(
            "nice",
            root / "bin/go",
            "build",
            "-p",
            "2",
            "-ldflags",
            flags,
            "-o",
            folder / PROGRAM.name,
            ".",
        ),
        cwd=place,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "GOROOT": str(root),
            "GOPATH": str(libraries),
            "GO111MODULE": "off",
            "GOTOOLCHAIN": "local",
            "CGO_ENABLED": "0",
        },
    )


if __name__ == "__main__":
    if sys.argv[1:] != ["build"]:
        sys.exit(__doc__)
    build()
    print(PROGRAM)
