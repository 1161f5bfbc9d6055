"""The launch of DeepSpeed and ColossalAI over ssh: sshd in every pod, and the launcher in one."""

from __future__ import annotations

from collections.abc import Mapping

FILES: Mapping[str, str] = {
    "supervise.py": "launch.ssh_supervisor",
    "serving.py": "launch.sshd_setup",
    "fitness.py": "launch.sshd_requirements",
    "ending.py": "launch.rank_shutdown",
    "processes.py": "processes",
    "launch.py": "launch.launch_runner",
    "links.py": "launch.ssh_connections",
    "preflight.py": "launch.preflight",
    "programs.py": "launch.launcher_programs",
    "places.py": "launch.hostfile",
    "minder.py": "launch.replica_agent",
    "rank.py": "launch.rank_wrapper",
    "colossalai_run.py": "launch.colossalai_run",
}
"""File names in the pod, and the modules."""
