"""`test_cmd.sh` notices what fails, and goes on: by sections of our own in the place of theirs."""

from __future__ import annotations

from pathlib import Path

from tests.foreign.test_cmd import prepare, run_sections, verdicts

FILES = {
    "hack/lib/init.sh": """
        set -o errexit -o nounset -o pipefail
        kube::util::ensure-gnu-sed() { :; }
    """,
    "hack/lib/test.sh": """
        kube::test::if_has_string() { kube::test::is_in "$@"; }
        kube::test::is_in() { grep -q "$2" <<<"$1" || return 1; }
        kube::test::if_supports_resource() { [[ " ${SUPPORTED_RESOURCES[*]} " == *" $1 "* ]]; }
    """,
    "hack/testdata/service.yaml": "clusterIP: 10.0.0.7",
    "test/cmd/legacy-script.sh": """
        source test/cmd/core.sh
        record_command() { "$@"; }
        runTests() {
          record_command run_pod_tests
          kube::test::if_supports_resource deployments && record_command run_deployment_tests
          record_command run_kubectl_config_set_tests
          run_recursive_tests
        }
    """,
    "test/cmd/core.sh": """run_pod_tests() {
          set -o errexit
          kube::test::if_has_string "a b" "b"
          kube::test::if_has_string "a b" "c"
          kubectl get pods
          output=$(! kubectl get pods)
          grep -q 10.96.0.7 hack/testdata/service.yaml
          output=$(kubectl get pods managedFields)
          kube::test::if_has_string "$output" "get pods managedFields --show-managed-fields"
          if ! kubectl get pods; then exit 1; fi
          for each in 1 2; do kube::test::if_has_string "$each" 2; done
          return 3
        }
        run_deployment_tests() { kubectl get deployments; }
        run_kubectl_config_set_tests() { kubectl get config; }
        run_recursive_tests() { kube::test::if_has_string "$UNSET" "d"; }
    """,
}


async def test_the_failures_of_sections_are_told_and_no_end_of_them(tmp_path: Path) -> None:
    source = tmp_path / "theirs"
    for name, text in FILES.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    program = tmp_path / "kubectl"
    program.write_text(
        '#!/bin/sh\necho "$@"\n[ "$*" != "get pods" ]\n'  # whatever else it is asked, it does
    )
    program.chmod(0o755)
    (tmp_path / "run").mkdir()
    environment = prepare(source, tmp_path / "run", str(program))
    log = await run_sections(tmp_path / "run", {**environment, "SECURE_API_PORT": "1"})
    assert [(each.name, each.passed) for each in verdicts(log)] == [
        ("core.sh:3 if_has_string", True),
        ("core.sh:4 if_has_string", False),
        ("core.sh:5 command", False),
        ("core.sh:9 if_has_string", True),
        ("core.sh:10 exit", False),
        ("core.sh:11 if_has_string", False),
        ("core.sh:11 if_has_string #2", True),
        ("legacy-script.sh:5 command", False),
        ("core.sh:16 if_has_string", False),
    ], log
    assert "this failed: kubectl get pods" in verdicts(log)[2].printed
    assert "## ended\tpod\t" in log
