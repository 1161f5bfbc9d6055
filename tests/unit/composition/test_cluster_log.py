"""A cluster's own log does not grow without end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from trainyard.podruntime.log_files import keep_end

CHATTY = """
import logging, sys
from trainyard.composition.cluster_log import log_to

with open(sys.argv[1], "a+") as file, open(sys.argv[1], "a") as beside:
    log_to(file)
    for number in range(int(sys.argv[2])):
        logging.info("%d %s", number, "x" * 10_000)
        if number % 100 == 0:
            print("beside", file=beside, flush=True)
"""


def test_the_end_of_the_log_is_kept_whoever_else_writes_to_it(tmp_path: Path) -> None:
    log = tmp_path / "cluster.log"
    subprocess.run([sys.executable, "-c", CHATTY, str(log), "3000"], check=True)
    assert 4 << 20 < log.stat().st_size <= 11 << 20
    lines = log.read_text().splitlines()
    numbers = [int(line.split()[3]) for line in lines if line != "beside"]
    assert numbers == list(range(numbers[0], 3000))
    assert "beside" in lines


def test_what_is_short_or_no_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntwo\n")
    with path.open("a+b") as file:
        keep_end(file.fileno(), 8)
        assert path.read_bytes() == b"one\ntwo\n"
        path.write_bytes(b"one\ntwo\nthree\n")
        keep_end(file.fileno(), 13)
        assert path.read_bytes() == b"three\n"
    with open("/dev/null", "a+b") as nothing:
        keep_end(nothing.fileno(), 0)
