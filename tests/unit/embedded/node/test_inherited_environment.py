"""Which variables of the caller a pod has, and which only when asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trainyard.embedded.node.containers.container_environment import image_environment
from trainyard.embedded.node.containers.inherited_environment import INHERITED, inherited_variables
from trainyard.embedded.node.node_settings import NodeSettings


@pytest.mark.parametrize(
    "name",
    [
        "SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY",
        "XAUTHORITY", "XDG_RUNTIME_DIR", "WAYLAND_DISPLAY", "KRB5CCNAME", "DOCKER_HOST",
        "KUBECONFIG", "GITHUB_TOKEN", "GH_TOKEN", "CI_JOB_TOKEN", "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS",
        "AZURE_CLIENT_SECRET", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY",
        "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "NVIDIA_API_KEY", "CONDA_AUTH_TOKEN",
        "PYTHON_KEYRING_PASSWORD", "TF_TOKEN_app", "PIP_INDEX_URL", "PGPASSWORD", "DATABASE_URL",
        "TF_VAR_db", "SECRET", "ANYTHING", "MASTER_ADDR", "RANK", "PET_NNODES",
        "TORCHELASTIC_RUN_ID", "CUDA_VISIBLE_DEVICES", "TRAINYARD_STATE_DIR", "TMPDIR", "PWD",
    ],
)  # fmt: skip
def test_nothing_that_may_be_a_credential_or_an_agent_is_passed(name: str) -> None:
    assert inherited_variables({name: "x"}) == {}


@pytest.mark.parametrize(
    "name",
    [
        "PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX",
        "PYENV_VERSION",
        "PYTHONPATH", "PYTHONUNBUFFERED", "CUDA_HOME", "CUDA_LAUNCH_BLOCKING", "NCCL_DEBUG",
        "OMP_NUM_THREADS", "MKL_NUM_THREADS", "TORCH_HOME", "TORCH_EXTENSIONS_DIR", "HF_HOME",
        "TORCHINDUCTOR_CACHE_DIR", "PYTORCH_CUDA_ALLOC_CONF", "TOKENIZERS_PARALLELISM",
        "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "no_proxy", "DS_BUILD_OPS", "TF_CPP_MIN_LOG_LEVEL",
    ],
)  # fmt: skip
def test_what_finds_programs_and_libraries_is(name: str) -> None:
    assert inherited_variables({name: "x"}) == {name: "x"}


@pytest.mark.parametrize("name", ["http_proxy", "HTTPS_PROXY", "all_proxy"])
def test_a_proxy_is_passed_unless_it_holds_a_password(name: str) -> None:
    assert inherited_variables({name: "http://proxy:8080"}) == {name: "http://proxy:8080"}
    assert inherited_variables({name: "http://me:secret@proxy:8080"}) == {}


def test_more_is_passed_by_name_and_by_pattern() -> None:
    names = ("WANDB_API_KEY", "WANDB_MODE", "RANK", "AWS_PROFILE", "PET_X")
    environment = dict.fromkeys(names, "x")
    assert inherited_variables(environment, ("WANDB_*", "RANK")).keys() == {
        "WANDB_API_KEY", "WANDB_MODE", "RANK",
    }  # fmt: skip
    assert inherited_variables(environment, ("*",)).keys() == {
        "WANDB_API_KEY",
        "WANDB_MODE",
        "AWS_PROFILE",
    }


def test_a_container_has_what_the_node_was_told_to_pass(tmp_path: Path) -> None:
    environment = {"HF_TOKEN": "t", "OTHER": "o"}
    settings = NodeSettings("n", str(tmp_path), environment=environment, passed=("HF_*",), gpus=())
    env = image_environment("any", settings)
    assert env.keys() == {"PATH", "HF_TOKEN"} or env.keys() == {"PATH", "HF_TOKEN", "VIRTUAL_ENV"}


def test_the_list_in_the_pages_is_the_one_that_holds() -> None:
    page = Path("docs/security.md").read_text()
    (block,) = re.findall(r"```text\n(.*?)```", page, re.S)
    assert block.split() == INHERITED.split()
