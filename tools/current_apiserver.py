"""Build a server of custom resources of current Kubernetes, from Debian's packages.

``python -m tools.current_apiserver build``, or ``make cluster CURRENT=1``. It serves definitions
and the kinds that they define (validation, CEL, defaults, server-side apply) and admission
policies by the libraries of Kubernetes 1.36, and passes everything else on to the older server of
``tools/control_plane.py``: Debian does not package what serves the core kinds. The program is
``tools/current-apiserver``; it is kept beside the older one. Five minutes of CPU time on top of
360 MB of downloads, and 5 GB while it builds. A build that was ended early goes on where it was;
exit codes are those of ``tools/control_plane.py``.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tools.control_plane import CACHE

from tools import debian

_RECIPE = 3  # to be raised with every change of what is built, or of how
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
_SOURCE = Path(__file__).with_name("current-apiserver")


def build() -> None:
    """Build it, unless it is there."""
    if PROGRAM.exists():
        return
    debian.require()
    with debian.workshop(BUILT, gibibytes=6) as folder:
        if PROGRAM.exists():  # meanwhile, by another
            return
        packages = debian.emptied(folder / "packages")
        system = debian.emptied(folder / "system")
        apt = debian.Apt(folder / "apt", suite="sid")
        names = apt.needed_for(*_PACKAGES)
        wanted = [name for name in names if name.startswith(("golang", "etcd-server"))]
        apt.get("download", *wanted, cwd=packages)
        debian.unpack(packages, system)
        (server,) = packages.glob("golang-k8s-apiserver-dev_*.deb")
        _compile(system, folder, server.name.split("_")[1].partition("-")[0])
        debian.keep(system / "usr/bin/etcd", BUILT)
        debian.keep(folder / PROGRAM.name, BUILT)


def _compile(system: Path, folder: Path, version: str) -> None:
    """`version` is ``0.36.4``, that of the libraries of Kubernetes 1.36.4."""
    _, minor, patch = version.split(".")
    if int(minor) != VERSION[1]:
        debian.lacking(
            f"Debian has Kubernetes 1.{minor} now; it is known to build of 1.{VERSION[1]}"
        )
    facts = {"gitVersion": f"v1.{minor}.{patch}", "gitMajor": "1", "gitMinor": minor}
    flags = " ".join(f"-X {_FACTS}.{name}={value}" for name, value in facts.items())
    libraries = system / "usr/share/gocode"
    place = libraries / "src/trainyard/current"
    shutil.copytree(_SOURCE, place, dirs_exist_ok=True)
    root = system / f"usr/lib/go-{_GO}"
    go = ("nice", root / "bin/go", "build", "-p", "2", "-ldflags", flags)
    debian.run(
        *(*go, "-o", folder / PROGRAM.name, "."),
        cwd=place,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "GOROOT": str(root),
            "GOPATH": str(libraries),
            "GO111MODULE": "off",
            "GOTOOLCHAIN": "local",
            "CGO_ENABLED": "0",
            "GOTMPDIR": str(folder / "tmp"),
            "GOGC": "400",
        },
    )


def main() -> int:
    """Say where it is, after building it if asked to."""
    if sys.argv[1:] == ["build"]:
        build()
    elif sys.argv[1:]:
        print(__doc__)
        return 2
    if not PROGRAM.exists():
        print("no current API server: python -m tools.current_apiserver build")
        return 1
    print(PROGRAM)
    return 0


if __name__ == "__main__":
    sys.exit(main())
