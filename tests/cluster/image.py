"""The operator's image, built of deploy/Dockerfile by buildah, without an engine or a registry.

Its base comes from no registry either: Debian's Python stands in for it, under the same name. So
what is judged is what the Dockerfile does, not what it does it to.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from subprocess import run
from typing import Any

from tests.tools import require
from tools import debian

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy/Dockerfile"
_PACKAGES = ("python3-venv", "python-is-python3", "python3-distutils", "ca-certificates")
_SHELL = ("bash", "coreutils", "dash")
_CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
_BASE = """FROM scratch
ADD base.tar /
"""
# As a kubelet starts it with readOnlyRootFilesystem; $1 is the root, $2 a folder for its /mnt.
START = """
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --bind "$2" "$1/mnt"
mount -o remount,bind,ro "$1"
root="$1" user="$3"
shift 3
exec chroot --userspec="$user" "$root" "$@"
"""


@dataclass(frozen=True)
class Image:
    """An image, with its files as a folder."""

    files: Path
    config: dict[str, Any]

    def command(self, mounted: Path, *arguments: str) -> tuple[str, ...]:
        """What it starts with these arguments, as its user, on files that cannot be written."""
        inside = (*self.config["Entrypoint"], *arguments)
        start = ("bash", "-c", START, "start", str(self.files), str(mounted), self.config["User"])
        return ("unshare", "--mount", "--pid", "--fork", "--kill-child", *start, *inside)

    @property
    def environment(self) -> dict[str, str]:
        """What its processes get, after what is needed to find `unshare` and `chroot`."""
        return dict(each.split("=", 1) for each in self.config["Env"])


def build(folder: Path) -> Image:
    """Build it, with everything that comes and goes in `folder`."""
    (folder / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    (folder / "registries.conf").touch()
    trusted = ("--signature-policy", str(folder / "policy.json"))
    building = ("bud", "--isolation", "chroot", "--format", "docker", *trusted)
    version = _base(folder)
    name = re.sub(r"\$\{PYTHON\}", version, _base_name())
    _buildah(folder, *building, "--tag", name, "--file", str(folder / "Base"), str(folder))
    ours = ("--pull-never", "--build-arg", f"PYTHON={version}", "--tag", "operator")
    _buildah(folder, *building, *ours, "--file", str(FILE), str(ROOT))
    told = json.loads(_buildah(folder, "inspect", "--type", "image", "operator"))
    container = _buildah(folder, "from", "--pull-never", *trusted, "operator").strip()
    files = Path(_buildah(folder, "mount", container).strip())
    return Image(files, told["Docker"]["config"])


def _base_name() -> str:
    """``docker.io/library/python:${PYTHON}-slim-…``, of the Dockerfile's stages."""
    (found,) = set(re.findall(r"^FROM (\S+)", FILE.read_text(), re.MULTILINE))
    return f"docker.io/library/{found}"


def _base(folder: Path) -> str:
    """Write what the base is made of; the version of its Python."""
    packages, files = folder / "packages", folder / "base"
    packages.mkdir()
    apt = debian.Apt(folder / "apt")
    apt.get("download", *apt.needed_for(*_PACKAGES, *_SHELL), cwd=packages)
    debian.unpack(packages, files)
    shutil.copy2(Path("/", _CERTIFICATES), files / _CERTIFICATES)
    (files / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (files / "etc/group").write_text("root:x:0:\n")
    for name in ("mnt", "proc", "tmp"):
        (files / name).mkdir(exist_ok=True)
    (files / "tmp").chmod(0o1777)
    run(["tar", "-C", files, "-cf", folder / "base.tar", "."], check=True)
    (folder / "Base").write_text(_BASE)
    (python,) = (files / "usr/bin").glob("python3.*[0-9]")
    return python.name.removeprefix("python")


def _buildah(folder: Path, *arguments: str) -> str:
    command = [
        require("buildah"),
        *("--root", folder / "storage", "--runroot", folder / "run", "--storage-driver", "vfs"),
        *("--registries-conf", folder / "registries.conf"),
        *arguments,
    ]
    done = run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
