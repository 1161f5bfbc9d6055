"""No manifest brings `trainyard run` to a traceback, or to a wait without a word."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor

from tests.embedded.command_line import PATIENCE_SECONDS, CommandLine
from tests.embedded.hostile_manifests import REFUSED, RUN, WAITING
from tests.tools import soak


def test_what_can_only_fail_is_refused_with_a_reason(trainyard: CommandLine) -> None:
    def refused(name: str) -> str:
        text, words = REFUSED[name]
        path = trainyard.folder / f"{name.replace(' ', '-')}.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        output = trainyard.run("run", "-f", str(path), code=None)
        return "" if words in output and "error: " in output else f"{name}: {output[:2000]}"

    names = list(REFUSED)[:: 1 if soak(0, 1) else 4]
    with ThreadPoolExecutor(2) as pool:
        assert not list(filter(None, pool.map(refused, names)))


def test_whatever_runs_comes_to_an_end_that_is_told(trainyard: CommandLine) -> None:
    """In one cluster, which lives on and leaves nothing."""
    path = trainyard.manifest("all.yaml", *(each.manifest for each in RUN))
    output = trainyard.run("run", "-f", path, code=1)
    for manifest, phase, words in RUN:
        name = manifest["metadata"]["name"]
        assert f"PyTorchTrainingJob {name}: {phase} after" in output, output[-20000:]
        for each in words:
            assert each in output, (name, output[-20000:])
    assert not trainyard.processes()


def test_what_waits_for_somebody_says_for_what(trainyard: CommandLine) -> None:
    path = trainyard.manifest("all.yaml", *(manifest for manifest, _ in WAITING.values()))
    missing = {words for _, words in WAITING.values()}
    with trainyard.running("run", "-f", path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            missing = {words for words in missing if words not in line}
            if not missing:
                break
        assert not missing
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=PATIENCE_SECONDS)[0]
    assert process.returncode == 130, output
    assert "Traceback" not in output
