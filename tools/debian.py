"""Debian's packages as a source of programs: downloaded and unpacked, never installed.

Needs no root. Packages come from where this machine gets its own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path


def require(*programs: str) -> None:
    """End with a message where a program that is needed is not on the PATH."""
    needed = ("apt-get", "dpkg-deb", *programs)
    if absent := [name for name in needed if shutil.which(name) is None]:
        sys.exit(f"cannot build a control plane without {', '.join(absent)}")


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    """Run a command that must succeed."""
    subprocess.run(command, cwd=cwd, env=env, check=True)


def unpack(packages: Path, system: Path) -> None:
    """Put the files of all packages of a folder below `system`."""
    for package in sorted(packages.glob("*.deb")):
        run("dpkg-deb", "--extract", package, system)


class Apt:
    """apt with lists of its own in `folder`, of this machine's release or of another `suite`."""

    def __init__(self, folder: Path, suite: str | None = None) -> None:
        sources = folder / "sources"
        for path in (sources, folder / "lists" / "partial", folder / "archives" / "partial"):
            path.mkdir(parents=True)
        (folder / "status").touch()
        (sources / "debian.sources").write_text(_entries(suite))
        self._options = [
            f"-o{option}={value}"
            for option, value in (
                ("Dir::Etc::SourceList", "/dev/null"),
                ("Dir::Etc::SourceParts", sources),
                ("Dir::State::Lists", folder / "lists"),
                ("Dir::State::status", folder / "status"),  # nothing is installed
                ("Dir::Cache", folder),
                ("APT::Sandbox::User", "root"),  # of no effect for others; silences a warning
            )
        ]
        self.get("update", cwd=folder)

    def get(self, *arguments: str, cwd: Path) -> None:
        """``apt-get``; what it downloads comes into `cwd`."""
        run("apt-get", "-qq", *self._options, *arguments, cwd=cwd)

    def needed_for(self, *packages: str) -> list[str]:
        """The names of all packages that `packages` depend on, and their own."""
        command = ("apt-get", "-y", *self._options, "install", "--print-uris", *packages)
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return [
            line.split()[1].partition("_")[0] for line in listed.splitlines() if line[:1] == "'"
        ]


def _entries(suite: str | None) -> str:
    """Debian's own entries of this machine's package sources, with source packages."""
    release = Path("/etc/os-release").read_text()
    found = re.search(r"^VERSION_CODENAME=(\w+)", release, re.MULTILINE)
    suites = found[1] if found else "stable"
    if suite is None:
        suites += r"(-\w+)?"  # updates, security
    entries: list[str] = []
    for file in sorted(Path("/etc/apt/sources.list.d").glob("*.sources")):
        entries += [
            re.sub(r"(?m)^Types:.*$", "Types: deb deb-src", entry).strip()
            for entry in re.split(r"\n\s*\n", file.read_text())
            if re.search(rf"(?m)^Suites:\s*{suites}(\s|$)", entry)
        ]
    listed = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.list")]
    for file in filter(Path.exists, listed):
        for address, name, parts in re.findall(
            rf"(?m)^deb\s+(?:\[.*?\]\s+)?(\S+)\s+({suites})\s+(\S.*)$", file.read_text()
        ):
            entries.append(
                f"Types: deb deb-src\nURIs: {address}\nSuites: {name}\nComponents: {parts}"
            )
    if not entries:
        sys.exit("cannot build a control plane: this machine has no package sources of Debian")
    if suite is not None:
        entries = [re.sub(r"(?m)^Suites:.*$", f"Suites: {suite}", entry) for entry in entries]
    return "\n\n".join(entries) + "\n"
