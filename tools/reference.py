"""Write or verify ``docs/reference/``, one page per kind.

Usage: ``python tools/reference.py [--check]``
"""

from __future__ import annotations

import sys
from pathlib import Path

from tools.reference_pages import index, page

from trainyard.kinds.table import KINDS

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs/reference"


def main() -> int:
    """Write the pages, or with ``--check`` say which of them are stale."""
    stale = 0
    pages = {FOLDER / f"{kind.singular}.md": page(kind) for kind in KINDS.values()}
    for path, text in {FOLDER / "kinds.md": index(), **pages}.items():
        if "--check" not in sys.argv[1:]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path.relative_to(ROOT)} is stale; run: python tools/reference.py")
            stale = 1
    return stale


if __name__ == "__main__":
    sys.exit(main())
