"""Write or verify ``docs/reference/``: one page per kind, and one of the operator's settings.

Usage: ``python -m tools.reference [--check] [--kind PACKAGE]``; the latter writes the page of a
kind from outside into its own folder.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

from tools.generated import main
from tools.reference_pages import index, page
from tools.settings_page import page as settings_page

from trainyard.kinds.kind_registry import OUR_KINDS, Kind

FOLDER = Path(__file__).parent.parent / "docs/reference"


def generated() -> dict[Path, str]:
    """The pages of our kinds, and of settings."""
    pages = {FOLDER / f"{kind.singular}.md": page(kind) for kind in OUR_KINDS.values()}
    settings = {FOLDER / "settings.md": settings_page()}
    return {FOLDER / "kinds.md": index(), **settings, **pages}


def of_kind(kind: Kind) -> dict[Path, str]:
    """The page of a kind, beside its code."""
    return {Path(str(files(kind.package))) / f"{kind.singular}.md": page(kind)}


if __name__ == "__main__":
    sys.exit(main(generated, of_kind))
