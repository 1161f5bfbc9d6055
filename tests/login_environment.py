"""The environment in which all tests run: what a user's login has, and the tests' own switches.

A test must not pass by what the shell of a developer or of CI exports.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from fnmatch import fnmatchcase

LOGIN = "PATH HOME USER LOGNAME SHELL LANG LANGUAGE LC_* TZ TERM TMPDIR MAIL XDG_*"
"""https://man7.org/linux/man-pages/man1/login.1.html, locale, and what systemd's login adds."""
NETWORK = "*_PROXY *_proxy SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE PIP_* UV_*"
"""How tests that install packages reach an index."""
SWITCHES = """
CI UPDATE_GOLDEN KUBEBUILDER_ASSETS TRAINYARD_SOAK* TRAINYARD_SEED TRAINYARD_SUITES
TRAINYARD_TORCH_BINS TRAINYARD_CLUSTER_TESTS TRAINYARD_CURRENT_APISERVER
PYTEST_* COV_* COVERAGE_* PYTHONPATH
"""
"""What a run of the tests is asked for; `tools.matrix` says by PYTHONPATH which code is tested."""


def scrub(environment: MutableMapping[str, str]) -> None:
    """Remove all else."""
    kept = " ".join((LOGIN, NETWORK, SWITCHES)).split()
    for name in list(environment):
        if not any(fnmatchcase(name, pattern) for pattern in kept):
            del environment[name]
