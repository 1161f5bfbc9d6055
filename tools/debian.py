"""Debian's packages as a source of programs: downloaded and unpacked, never installed.

Needs no root. Packages come from where this machine gets its own.
"""

from __future__ import annotations

import fcntl
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

LACKING = 69
"""Exit code where this machine lacks what a build takes (EX_UNAVAILABLE); it is 1 where a build
fails that had everything."""
_GIBIBYTE = 1 << 30


def lacking(what: str) -> NoReturn:
    """End, and say what this machine lacks."""
    print(f"cannot go on: {what}", file=sys.stderr)
    sys.exit(LACKING)


def require(*programs: str) -> None:
    """End with a message where a program that is needed is not on the PATH."""
    needed = ("apt-get", "dpkg-deb", *programs)
    if absent := [name for name in needed if shutil.which(name) is None]:
        lacking(f"{', '.join(absent)} not found")


@contextmanager
def workshop(place: Path, gibibytes: int) -> Iterator[Path]:
    """A folder in `place` to build in, for one process at a time, with that much room.

    It is kept where the build ends early, for the next one to go on with what is there.
    """
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another process builds in {place}: waiting for it", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        folder = place / "build"
        is_new = not folder.exists()
        free = shutil.disk_usage(place).free
        if is_new and free < gibibytes * _GIBIBYTE:
            lacking(f"it takes {gibibytes} GiB in {place}, where {free / _GIBIBYTE:.1f} are free")
        folder.mkdir(exist_ok=True)
        (folder / "tmp").mkdir(exist_ok=True)
        try:
            yield folder
        except BaseException:
            print(f"what is built so far is in {folder}: the next build goes on", file=sys.stderr)
            raise
        shutil.rmtree(folder)


def emptied(folder: Path) -> Path:
    """The folder, with nothing in it: packages of two days need not fit together."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def keep(program: Path, place: Path) -> None:
    """Copy a program into a folder, where it is seen only when it is whole."""
    part = place / f".{program.name}"
    shutil.copy2(program, part)
    part.rename(place / program.name)


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    """Run a command that must succeed."""
    done = subprocess.run(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, check=False)
    if code := done.returncode:
        sys.exit(f"this failed with {code}: {shlex.join(map(str, command))[:500]}")


def unpack(packages: Path, system: Path) -> None:
    """Put the files of all packages of a folder below `system`."""
    for package in sorted(packages.glob("*.deb")):
        run("dpkg-deb", "--extract", package, system)


class Apt:
    """apt with lists of its own in `folder`, of this machine's release or of another `suite`."""

    def __init__(self, folder: Path, suite: str | None = None) -> None:
        sources = folder / "sources"
        for path in (sources, folder / "lists" / "partial", folder / "archives" / "partial"):
            path.mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        (sources / "debian.sources").write_text(sources_of(suite))
        self._options = [
            f"-o{option}={value}"
            for option, value in (
                ("Dir::Etc::SourceList", "/dev/null"),
                ("Dir::Etc::SourceParts", sources),
                ("Dir::State::Lists", folder / "lists"),
                ("Dir::State::status", folder / "status"),  # nothing is installed
                ("Dir::Cache", folder),
                ("APT::Sandbox::User", "root"),  # of no effect for others; silences a warning
                ("Acquire::Retries", "3"),
                ("Acquire::http::Timeout", "60"),  # without an answer, in seconds; for https too
            )
        ]
        self.get("update", cwd=folder)
        # A source that is out of reach is a warning only: it may be one that is not needed.
        if not [*(folder / "lists").glob("*_Packages*")]:
            lacking("no list of packages could be had; it says above why")

    def get(self, *arguments: str, cwd: Path) -> None:
        """``apt-get``; what it downloads comes into `cwd`."""
        command = ("apt-get", "-qq", *self._options, *arguments)
        done = subprocess.run(command, cwd=cwd, stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            what = ", ".join(arguments[1:4]) or "the lists of packages"
            lacking(f"apt-get {arguments[0]} failed for {what}; it says above why")

    def needed_for(self, *packages: str) -> list[str]:
        """The names of all packages that `packages` depend on, and their own."""
        command = ("apt-get", "-y", *self._options, "install", "--print-uris", *packages)
        listed = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if listed.returncode:
            lacking(f"packages: {listed.stderr.strip() or listed.stdout[-500:]}")
        return [
            line.split()[1].partition("_")[0]
            for line in listed.stdout.splitlines()
            if line[:1] == "'"
        ]


def sources_of(suite: str | None, etc: Path = Path("/etc")) -> str:
    """Debian's own entries of this machine's package sources, with source packages."""
    release = (etc / "os-release").read_text()
    found = re.search(r"^VERSION_CODENAME=(\w+)", release, re.MULTILINE)
    suites = found[1] if found else "stable"
    if suite is None:
        suites += r"(?:-\w+)?"  # updates, security
    entries: list[str] = []
    for file in sorted(etc.glob("apt/sources.list.d/*.sources")):
        entries += [
            re.sub(r"(?m)^Types:.*$", "Types: deb deb-src", entry).strip()
            for entry in re.split(r"\n\s*\n", file.read_text())
            if re.search(rf"(?m)^Suites:\s*{suites}(\s|$)", entry)
            and not re.search(r"(?mi)^Enabled:\s*(no|false)\b", entry)
        ]
    listed = [etc / "apt/sources.list", *sorted(etc.glob("apt/sources.list.d/*.list"))]
    for file in filter(Path.exists, listed):
        for options, address, name, parts in re.findall(
            rf"(?m)^deb\s+(?:\[(.*?)\]\s+)?((?!cdrom:)\S+)\s+({suites}[ \t])(\S.*)$",
            file.read_text(),
        ):
            lines = ["Types: deb deb-src", f"URIs: {address}", f"Suites: {name.strip()}"]
            given = dict(each.partition("=")[::2] for each in options.split())
            lines += [
                f"{each}: {given[each]}" for each in ("signed-by", "trusted") if each in given
            ]
            entries.append("\n".join([*lines, f"Components: {parts}"]))
    if not entries:
        lacking("this machine has no package sources of Debian")
    if suite is not None:
        entries = [re.sub(r"(?m)^Suites:.*$", f"Suites: {suite}", entry) for entry in entries]
    return "\n\n".join(entries) + "\n"
