"""Records of submissions, in the order in which they were made."""

from __future__ import annotations

from pathlib import Path

from trainyard.client import submission_records


def test_records_of_one_second_are_in_their_order(tmp_path: Path) -> None:
    """Names of jobs do not decide it."""
    made = []
    for name in ("b", "c", "a", "a", "c"):
        folder = submission_records.make(tmp_path, name)
        (folder / "record.json").write_text('{"command": []}')
        made.append(folder)
    assert [each.folder for each in submission_records.records(tmp_path)] == made[::-1]
