"""What looks like a secret is hidden wherever it stands, and what people need to read is not."""

from __future__ import annotations

import pytest

from trainyard.machine.secret_redaction import (
    REDACTED,
    is_secret,
    redact_value,
    redact_words,
    without_credentials,
)

_HIDDEN = "s3cr3tvalue-0123456789"
_COMMANDS = [
    ["--passphrase", _HIDDEN],
    ["--header", f"Authorization: Bearer {_HIDDEN}"],
    [f"+secrets.token={_HIDDEN}"],
    [f"++logger.wandb.api_key={_HIDDEN}"],
    ["--config", f'{{"lr": 1, "api_key": "{_HIDDEN}"}}'],
    [f"https://host/data?access_token={_HIDDEN}&x=1"],
    [f"https://bucket/x?X-Amz-Signature={_HIDDEN}&X-Amz-Date=20260101"],
    ["bash", "-c", f"PGPASSWORD={_HIDDEN} psql -h db && python t.py"],
    ["bash", "-c", f"export PGPASSWORD={_HIDDEN}; python t.py"],
    ["bash", "-c", f"env LR=1 HF_TOKEN='{_HIDDEN}' python t.py"],
    ["bash", "-c", f"python t.py --token {_HIDDEN} --lr 1"],
    ["curl", "-H", f"Cookie: session={_HIDDEN}"],
    [f"--db=Server=x;User=me;Password={_HIDDEN};Port=1"],
    [f"CONN=Server=x;Password={_HIDDEN}"],
    [f"COOKIE={_HIDDEN}"],
    [f"GITHUB_PAT={_HIDDEN}"],
    [f"PGPASSWORD={_HIDDEN}"],
]
_TOKENS = [
    "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345",
    "hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "github_pat_11ABCDEFG0123456789_abcdefghij",
    "glpat-abcdefghij0123456789",
    "sk-proj-abcdefghijklmnop0123",
    "gsk_0123456789abcdefghijABCDEFGHIJ",
    "dapi0123456789abcdef0123456789abcdef",
    "xoxb-123456789012-abcdefghij",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcdefghijklmnop",
    "sk-ant-api03-abcdefghijklmnop0123",
    "sk-or-v1-abcdefghijklmnop0123",
    "pypi-AgEIcHlwaS5vcmcCJDAx",
    "ASIAIOSFODNN7EXAMPLE",
    "AIzaSyAB-0123456789abcdefghijABCDEFGHIJ",
    "ya29.a0AfH6SMBx0123456789abcdef",
    *(
        f"{prefix}_0123456789abcdefghij"
        for prefix in (
            *("gho", "ghs", "ghu", "ghr", "npm", "dckr_pat", "tskey", "ntn", "lin_api", "nvapi"),
            *("shpat", "pul", "rk_live", "sk_live", "r8", "xai", "pplx", "lsv2_pt", "lsv2_sk"),
        )
    ),
]
_VARIABLES = ["PGPASSWORD", "GITHUB_PAT", "COOKIE", "WANDB_API_KEY", "SSH_PRIVATE_KEY", "NPM_TOKEN"]
_HARMLESS = """
train.py --max-tokens 512 --num_tokens_per_batch=4096 --text-key content --label_keys input labels
train.py --tokenizer gpt2 --pad-token <pad> --eos_token=[EOS] --token-file /run/token --lr 1e-4
train.py --auth-mode iam --sort-key loss --key-frames 3 --pattern *.py --passes 3 --bypass-mode auto
train.py model.tokenizer.name=gpt2 data.key=image trainer.max_epochs=3 +data.keys=[a,b] ~data.x
train.py --use_auth_token true --add-bos-token false --signature-columns a,b --mask_token_id 103
torchrun --nproc-per-node 8 --rdzv-id key1 --rdzv-endpoint host:29500 train.py --keys-to-log loss
train.py hf_transfer_enabled hf_home npm_config_registry sk-learn-models-and-pipelines gsk_x r8_b
python -m app.train --compass north --authors me --monkey 1 --secretary on --pass-rate 0.5
""".strip().splitlines()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("HF_TOKEN", True),
        ("WANDB_API_KEY", True),
        ("api-key", True),
        ("dbPassword", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("author", False),
        ("keyboard", False),
        ("TOKENIZERS_PARALLELISM", False),
    ],
)
def test_a_secret_is_known_by_its_name(name: str, expected: bool) -> None:
    assert is_secret(name) is expected


def test_secrets_of_a_command_line_are_hidden() -> None:
    words = "run --env HF_TOKEN=abc --env LR=1 t.py --api-key xyz --max-tokens 512 --token=q -v"
    shown = "run --env HF_TOKEN=*** --env LR=1 t.py --api-key *** --max-tokens 512 --token=*** -v"
    assert redact_words(words.split()) == shown.split()
    assert redact_words(["--db", "postgres://u:p@host/x"]) == ["--db", "postgres://host/x"]
    assert redact_words(["--password", "--verbose"]) == ["--password", "--verbose"]


def test_an_address_loses_its_user() -> None:
    assert without_credentials("https://token@github.com/a/b") == "https://github.com/a/b"
    assert without_credentials("git@github.com:a/b.git") == "git@github.com:a/b.git"


@pytest.mark.parametrize("words", _COMMANDS, ids=lambda words: words[-1][:30])
def test_a_secret_is_hidden_wherever_it_stands_in_a_command(words: list[str]) -> None:
    shown = redact_words(["run", "t.py", *words])
    assert _HIDDEN not in " ".join(shown)
    assert REDACTED in " ".join(shown)
    assert redact_words(shown) == shown


@pytest.mark.parametrize("token", _TOKENS)
def test_a_token_is_known_by_its_form(token: str) -> None:
    assert redact_words(["t.py", token, f"--x={token}", f"a {token} b"]) == [
        *("t.py", REDACTED, f"--x={REDACTED}", f"a {REDACTED} b"),
    ]


@pytest.mark.parametrize("name", _VARIABLES)
def test_a_variable_of_such_a_name_is_hidden(name: str) -> None:
    assert redact_value(name, _HIDDEN) == REDACTED
    assert redact_words([f"{name}={_HIDDEN}"]) == [f"{name}={REDACTED}"]


def test_a_secret_within_a_variable_is_hidden() -> None:
    shown = redact_value("CONN", f"Server=x;Password={_HIDDEN};Port=1")
    assert shown == "Server=x;Password=***;Port=1"
    assert redact_value("PWD", "/home/me") == "/home/me"


def test_code_in_a_command_stays_as_it_is() -> None:
    code = 'tokens = 3; key = find(x); d = {"key": 1}; t = AutoTokenizer.from_pretrained("x")'
    assert redact_words(["python", "-c", code]) == ["python", "-c", code]


@pytest.mark.parametrize("line", _HARMLESS, ids=lambda line: line[:30])
def test_what_is_no_secret_stays_as_it_is(line: str) -> None:
    assert redact_words(line.split()) == line.split()
