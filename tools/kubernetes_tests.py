"""Kubernetes' own tests of kubectl (`test/cmd`), for `tests/foreign`: nothing of them is kept here.

Usage: ``python -m tools.kubernetes_tests`` says where they are; ``python -m tools.kubernetes_tests
fetch`` takes them out of Debian 12's source package of Kubernetes, 1.20, into
``~/.cache/trainyard`` (``$XDG_CACHE_HOME``), where every clone finds them: a download of 60 MB. It
ends with 69 where the machine lacks what it takes, and says what.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools.control_plane import CACHE

from tools import debian

_RECIPE = 1  # to be raised with every change of what is taken
KEPT = CACHE / f"kubernetes-tests-{_RECIPE}"
HOW = "no tests of Kubernetes found; to fetch them: python -m tools.kubernetes_tests fetch"
_PARTS = ("hack", "test", "third_party/forked/shell2junit")


def find() -> Path | None:
    """The root of their source, if it has been fetched."""
    source = KEPT / "source"
    return source if source.exists() else None


def fetch() -> None:
    """Put the source there that `find` looks for."""
    if find():
        return
    debian.require("tar", "xz")
    with debian.workshop(KEPT, gibibytes=1) as folder:
        if find():  # meanwhile, by another
            return
        packages, source = debian.emptied(folder / "packages"), debian.emptied(folder / "source")
        apt = debian.Apt(folder / "apt")
        apt.get("source", "--download-only", "kubernetes", cwd=packages)
        (archive,) = packages.glob("kubernetes_*.orig.tar.*")
        debian.run(
            *("tar", "--extract", "--file", archive, "--directory", source),
            *("--strip-components=1", "--wildcards", "--no-wildcards-match-slash"),
            *(f"*/{part}" for part in _PARTS),
        )
        source.rename(KEPT / "source")


def main() -> int:
    """Print what `find` finds, after fetching it if asked to."""
    if sys.argv[1:] == ["fetch"]:
        fetch()
    elif sys.argv[1:]:
        print(__doc__)
        return 2
    print(find() or HOW)
    return 0 if find() else 1


if __name__ == "__main__":
    sys.exit(main())
