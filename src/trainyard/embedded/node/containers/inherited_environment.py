"""Which variables of the process that started the cluster its pods inherit.

Those by which programs and libraries are found, and documented switches of frameworks.

The rest may be tokens and addresses of agents; it takes ``--pass-env`` (decision 79).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from trainyard.machine.secret_redaction import is_secret

# https://man7.org/linux/man-pages/man7/environ.7.html, and what torch, CUDA, ROCm, Hugging Face's
# libraries, compilers and TLS libraries document as places and switches of theirs.
INHERITED = """
PATH HOME USER LOGNAME SHELL TERM LANG LANGUAGE LC_* TZ
LD_LIBRARY_PATH LD_PRELOAD LIBRARY_PATH CPATH CC CXX MAX_JOBS VIRTUAL_ENV PYTHON* CONDA_*
PYENV_* ASDF_* MISE_*
SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NO_PROXY no_proxy
TORCH* PYTORCH_* TRITON_* DS_* XLA_* JAX_* OMP_* GOMP_* KMP_* MKL_* OPENBLAS_* NUMEXPR_*
TF_CPP_* TF_CUDNN_* TF_ENABLE_* TF_FORCE_* TF_GPU_* TF_XLA_*
CUDA_* CUDNN_* NVIDIA_* NCCL_* GLOO_* UCX_* FI_* RDMAV_* HIP_* HSA_* ROCM_* ROCR_* RCCL_* MIOPEN_*
HF_HOME HF_HUB_CACHE HF_HUB_OFFLINE HF_DATASETS_CACHE HF_DATASETS_OFFLINE HF_ENDPOINT
TRANSFORMERS_CACHE TRANSFORMERS_OFFLINE TOKENIZERS_PARALLELISM
XDG_CACHE_HOME MPLBACKEND MPLCONFIGDIR
"""
PROXIES = "HTTP_PROXY HTTPS_PROXY FTP_PROXY ALL_PROXY"
"""In either case, and only without a user and a password in them."""
NEVER_INHERITED = """
HOSTNAME PWD OLDPWD SHLVL _ COLUMNS LINES LISTEN_FDS NOTIFY_SOCKET PYTEST_CURRENT_TEST
MASTER_ADDR MASTER_PORT RANK WORLD_SIZE LOCAL_RANK GROUP_RANK LOCAL_WORLD_SIZE ROLE_RANK
CUDA_VISIBLE_DEVICES PET_* TORCHELASTIC_* KUBERNETES_* TRAINYARD_*
"""
"""Describe the caller's own process or another distributed job; inherited only by full name."""


def inherited_variables(
    environment: Mapping[str, str], wanted: tuple[str, ...] = ()
) -> dict[str, str]:
    """What of ``environment`` pods have; ``wanted`` are more names and patterns (``fnmatch``)."""
    return {n: value for n, value in environment.items() if _is_inherited(n, value, wanted)}


@functools.lru_cache(4096)
def _is_inherited(name: str, value: str, wanted: tuple[str, ...]) -> bool:
    if name in wanted:
        return True
    if _compile_patterns(NEVER_INHERITED).match(name):
        return False
    if wanted and _compile_patterns(" ".join(wanted)).match(name):
        return True
    if _compile_patterns(PROXIES).match(name.upper()):
        return "@" not in value
    return _compile_patterns(INHERITED).match(name) and not is_secret(name)


class _Patterns(NamedTuple):
    """Patterns by how they match: `fnmatch` alone compiles for some 50 ms before the first pod."""

    names: frozenset[str]
    beginnings: tuple[str, ...]
    others: tuple[str, ...]

    def match(self, name: str) -> bool:
        return (
            name in self.names
            or name.startswith(self.beginnings)
            or any(fnmatchcase(name, pattern) for pattern in self.others)
        )


@functools.cache
def _compile_patterns(patterns: str) -> _Patterns:
    all_ = patterns.split()
    names = {each for each in all_ if not _is_pattern(each)}
    begin = {each for each in all_ if each.endswith("*") and not _is_pattern(each[:-1])}
    rest = tuple(each for each in all_ if each not in names | begin)
    return _Patterns(frozenset(names), tuple(each[:-1] for each in begin), rest)


def _is_pattern(text: str) -> bool:
    return not {"*", "?", "["}.isdisjoint(text)
