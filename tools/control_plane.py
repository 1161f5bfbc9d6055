"""Find a real Kubernetes control plane for ``tests/cluster``, or build an old one.

Usage: ``python -m tools.control_plane`` says what there is;
``python -m tools.control_plane build`` builds one in ``~/.cache/trainyard`` (``$XDG_CACHE_HOME``),
where every clone finds it.

Current binaries are the better judge: put the path of an envtest folder (etcd, kube-apiserver,
kubectl) into ``$KUBEBUILDER_ASSETS``; for our own kinds ``tools/current_apiserver.py`` builds some.
Building is for where only Debian 12 is at hand: it takes Kubernetes 1.20 from Debian's source
package, and etcd, Go and what else it needs as packages that are unpacked, not installed. It needs
no root; four minutes of CPU time on top of 120 MB of downloads, and 3 GB while it builds. A build
that was ended early goes on where it was. It ends with 69 where the machine lacks what it takes,
and says what; with 1 where it fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools import debian

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainyard"
_RECIPE = 2  # to be raised with every change of what is built, or of how
BUILT = CACHE / f"control-plane-{_RECIPE}"
SERVERS = ("kube-apiserver", "kube-controller-manager")
HOW = (
    "name a folder that holds etcd and kube-apiserver in $KUBEBUILDER_ASSETS, "
    "or run: python -m tools.control_plane build"
)

_PACKAGES = (
    "etcd-server",
    "golang-1.19-go",
    "golang-1.19-src",
    "golang-github-modern-go-reflect2-dev",
    # The build copies its results with rsync.
    "libpopt0",
    "libxxhash0",
    "rsync",
)
_REFLECT2 = "github.com/modern-go/reflect2"


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The programs of a control plane. Without a controller manager nothing is collected."""

    etcd: Path
    apiserver: Path
    controller_manager: Path | None

    @property
    def version(self) -> tuple[int, int]:
        """Of the API server: (1, 20)."""
        text = subprocess.run(
            [self.apiserver, "--version"], capture_output=True, text=True, check=True, timeout=60
        ).stdout
        found = re.search(r"v(\d+)\.(\d+)", text)
        if found is None:
            raise ValueError(f"{self.apiserver} --version says {text!r}")
        return int(found[1]), int(found[2])


@cache
def find() -> ControlPlane | None:
    """In ``$KUBEBUILDER_ASSETS``, else on PATH, else what was built here."""
    places = [os.environ.get("KUBEBUILDER_ASSETS", ""), os.environ.get("PATH", "")]
    if _is_built():  # not where a build has kept some of its programs only
        places.append(str(BUILT))
    for place in filter(None, places):
        etcd, apiserver, manager = (
            shutil.which(name, path=place)
            for name in ("etcd", "kube-apiserver", "kube-controller-manager")
        )
        if etcd and apiserver:
            return ControlPlane(Path(etcd), Path(apiserver), Path(manager) if manager else None)
    return None


def build() -> None:
    """Build what `find` looks for last; what is there already is not built again."""
    if _is_built():
        return
    debian.require("dpkg-source", "git", "make")
    with debian.workshop(BUILT, gibibytes=4) as folder:
        if _is_built():  # meanwhile, by another
            return
        packages = debian.emptied(folder / "packages")
        _download(packages, debian.Apt(folder / "apt"))
        source, system = folder / "source", debian.emptied(folder / "system")
        debian.unpack(packages, system)
        (description,) = packages.glob("*.dsc")
        shutil.rmtree(source, ignore_errors=True)
        debian.run("dpkg-source", "--no-check", "--extract", description, source)
        _compile(source, system, folder, _version(description.name))
        debian.keep(system / "usr/bin/etcd", BUILT)
        for server in SERVERS:
            debian.keep(source / "_output/bin" / server, BUILT)


def _is_built() -> bool:
    return all((BUILT / name).exists() for name in ("etcd", *SERVERS))


def _version(name: str) -> str:
    """``1.20.2`` from ``kubernetes_1.20.5+really1.20.2-1.1.dsc``."""
    found = re.search(r"(?:_|really)(\d+\.\d+\.\d+)(?!.*really)", name)
    if found is None or not found[1].startswith("1.20."):
        debian.lacking(f"{name}: only Kubernetes 1.20, that of Debian 12, is known to build")
    return found[1]


def _download(packages: Path, apt: debian.Apt) -> None:
    """The packages and the source, from where this machine gets its packages."""
    apt.get("download", *_PACKAGES, cwd=packages)
    apt.get("source", "--download-only", "kubernetes", cwd=packages)


def _compile(source: Path, system: Path, folder: Path, version: str) -> None:
    _fit_to_newer_go(source, system)
    major, minor, _ = version.split(".")
    facts = folder / "version.sh"
    facts.write_text(
        f"KUBE_GIT_COMMIT={'0' * 40}\nKUBE_GIT_TREE_STATE=clean\nKUBE_GIT_VERSION=v{version}\n"
        f"KUBE_GIT_MAJOR={major}\nKUBE_GIT_MINOR={minor}\n"
    )
    debian.run("git", "init", "--quiet", source)  # else the build asks the repository around it
    places = [system / "usr/lib/go-1.19/bin", system / "usr/bin", os.environ["PATH"]]
    (libraries,) = {path.parent for path in (system / "usr/lib").glob("*/libpopt.so.0")}
    environment = {
        "HOME": str(folder),
        "PATH": os.pathsep.join(map(str, places)),
        "LD_LIBRARY_PATH": str(libraries),
        "KUBE_GIT_VERSION_FILE": str(facts),
        "GOTMPDIR": str(folder / "tmp"),
        # Nothing of clouds: their libraries are a third of all that there would be to compile.
        "GOFLAGS": "-modcacherw -tags=providerless",
        "GOPROXY": "off",  # the source package has all of them
        "CGO_ENABLED": "0",  # no C compiler is needed
        "GOGC": "400",
    }
    # What else `make` alone would generate is in the source package, and so is up to date.
    what = [f"cmd/{server}" for server in SERVERS]
    for command in (("make", "gen_openapi"), ("hack/make-rules/build.sh", *what)):
        debian.run("nice", *command, cwd=source, env=environment)


def _fit_to_newer_go(source: Path, system: Path) -> None:
    """Kubernetes 1.20 was made for Go 1.15; two of its libraries break under Go 1.18 and newer."""
    # The server would crash on the first write of a custom resource.
    vendored = source / "vendor" / _REFLECT2
    shutil.rmtree(vendored)
    shutil.copytree(system / "usr/share/gocode/src" / _REFLECT2, vendored)
    # It would take every empty text in a custom resource for null, and refuse it: this compares
    # the value's address with that of Go's zero values, which used never to be the same.
    validator = source / "vendor/k8s.io/kube-openapi/pkg/validation/validate/type.go"
    text = validator.read_text()
    odd = " || reflect.DeepEqual(reflect.Zero(reflect.TypeOf(data)), reflect.ValueOf(data))"
    if odd not in text:
        sys.exit(f"cannot build a control plane: {validator.relative_to(source)} is unexpected")
    validator.write_text(text.replace(odd, ""))


def main() -> int:
    """Print what `find` finds, after building it if asked to."""
    if sys.argv[1:] == ["build"]:
        build()
    elif sys.argv[1:]:
        print(__doc__)
        return 2
    found = find()
    if found is None:
        print(f"no control plane found: {HOW}")
        return 1
    print(f"Kubernetes {'.'.join(map(str, found.version))}")
    for path in (found.etcd, found.apiserver, found.controller_manager):
        print(path or "no kube-controller-manager: owned objects are not collected")
    return 0


if __name__ == "__main__":
    sys.exit(main())
