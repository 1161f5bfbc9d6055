"""What a pod says that can never serve ssh is understood by the controller."""

from __future__ import annotations

import pytest

from trainyard.evidence.start_failures import never_starts
from trainyard.payloads.launch.sshd_requirements import CannotServeSsh, check_rights

ALL, NONE = "CapEff:\t000001ffffffffff\n", "Name:\tpython3\nCapEff:\t0000000000000000\n"


def test_what_is_missing_for_good_is_known_as_such() -> None:
    words = CannotServeSsh("no sshd", permanent=True).log_text("job-worker-1")
    assert never_starts("Error", f"some output\ntrainyard: {words}") == "no sshd"
    killed = CannotServeSsh("killed").log_text("job-worker-1")
    assert never_starts("Error", f"trainyard: {killed}") == ""
    assert never_starts("Error", f"the user's own words: trainyard: {words}") == ""


def test_missing_capabilities_of_sshd_are_named() -> None:
    check_rights(ALL)
    with pytest.raises(CannotServeSsh, match="SETGID, SETUID, SYS_CHROOT"):
        check_rights(NONE)
