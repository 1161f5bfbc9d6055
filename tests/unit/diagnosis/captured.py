"""Logs of replicas that failed, as real launchers and torch 2.13 wrote them, with their times."""

from __future__ import annotations

from pathlib import Path

from trainyard.client.log_tails import Tail

_FOLDER = Path(__file__).parent / "captures"


def names() -> list[str]:
    """`<failure>.<launcher>.<replica>` of each."""
    return sorted(path.stem for path in _FOLDER.glob("*.log"))


def tail(name: str) -> Tail:
    """One of them, as the client reads it."""
    records = (_FOLDER / f"{name}.log").read_text().splitlines()
    cut = [record.partition(" ") for record in records]
    kept = [(time, text) for time, _, text in cut if text.strip()]
    return Tail([text for _, text in kept], [time for time, _ in kept])
