"""Run a program as another user: ``python -m tests.embedded.as_user [options] ARGV``.

Needs root. Works in a mount namespace of its own, in which folders on the way to the interpreter
that only root may enter are laid over with ones that everybody may. ``--forbid-namespaces`` makes
any further namespace impossible, by limits that hold inside one user namespace only.
``--people=FOLDER`` lays the files ``passwd`` and ``group`` of a folder over those of the machine,
and ``--user=NAME`` chooses one of them; without it, it is an unprivileged user without a name.
"""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

from trainyard.podruntime import syscalls

USER = 4242
MS_PRIVATE = 1 << 18


def _open_way(to: Path, scratch: str) -> None:
    for number, folder in enumerate(reversed(to.parents)):
        if not folder.stat().st_mode & 1:
            upper, work = f"{scratch}/{number}-upper", f"{scratch}/{number}-work"
            os.mkdir(upper)
            os.mkdir(work)
            os.chmod(upper, 0o755)
            options = f"lowerdir={folder},upperdir={upper},workdir={work}"
            syscalls.mount("overlay", str(folder), "overlay", 0, options)


def _forbid_namespaces() -> None:
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    for name, text in (
        ("self/setgroups", "deny"),
        ("self/gid_map", f"{USER} {USER} 1"),
        ("self/uid_map", f"{USER} {USER} 1"),
        ("sys/user/max_user_namespaces", "0"),
    ):
        Path(f"/proc/{name}").write_text(text)


def _become(name: str) -> None:
    who = pwd.getpwnam(name)
    os.environ.update(HOME=who.pw_dir, USER=name, LOGNAME=name)
    os.setgroups(os.getgrouplist(name, who.pw_gid))
    os.setresgid(who.pw_gid, who.pw_gid, who.pw_gid)
    os.setresuid(who.pw_uid, who.pw_uid, who.pw_uid)


def main(arguments: list[str]) -> None:
    options = {"forbid-namespaces": "", "people": "", "user": ""}
    while arguments and arguments[0].startswith("--"):
        name, _, value = arguments.pop(0).removeprefix("--").partition("=")
        options[name] = value or "yes"
    syscalls.unshare(syscalls.CLONE_NEWNS)
    syscalls.mount("", "/", "", syscalls.MS_REC | MS_PRIVATE)
    for file in ("passwd", "group") if options["people"] else ():
        syscalls.mount(f"{options['people']}/{file}", f"/etc/{file}", "", syscalls.MS_BIND)
    if options["user"] == "root":
        _become("root")
        os.execvp(arguments[0], arguments)
    syscalls.mount("tmpfs", "/mnt", "tmpfs", 0, "mode=755")
    for path in {
        Path(sys.executable).resolve(),
        Path(sys.prefix) / "bin",
        Path(__file__).parents[2] / "src",
    }:
        _open_way(path, "/mnt")
    if options["user"]:
        _become(options["user"])
    else:
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
    if options["forbid-namespaces"]:
        _forbid_namespaces()
    os.execvp(arguments[0], arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
