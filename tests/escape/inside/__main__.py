"""See the package; ``only`` in the situation names the attempts to be made, if not all are."""

from __future__ import annotations

import json
import os

from . import ATTEMPTS
from .trying import HERE, outcome

if __name__ == "__main__":
    os.makedirs("/mnt", exist_ok=True)
    wanted = HERE.get("only") or ATTEMPTS
    print(json.dumps({name: outcome(ATTEMPTS[name]) for name in wanted}))
