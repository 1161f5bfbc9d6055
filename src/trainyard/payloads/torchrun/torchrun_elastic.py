"""What the agents of an elastic job do besides what torch's own do (decision 95).

Their pods live on when others fail: members leave and miss each other without closing the
rendezvous. Each patch takes private names of torch, and does without what is missing, as
`torchrun_program` says. Shipped in one text with `torchrun_program`. Standard library, Python 3.8,
and torch.
"""

from __future__ import annotations

import sys

from trainyard.payloads.torchrun.torchrun_program import warn_once

TYPE_CHECKING = False  # that of typing takes 8 ms to import
if TYPE_CHECKING:
    from typing import Any

MISSES_MEMBERS = "way to see that a member of the job has left"
FORGIVES = "way to forgive failures while members change"
MEETS_AGAIN = "way to repeat a rendezvous in which a member left"
LEAVES_OPEN = "way for a failed replica to leave the others the rendezvous"
CHECKS_AFTER_FAILURE, SECONDS_BETWEEN_CHECKS = 4, 0.4
"""How often it is asked whether members change when ranks have failed. What an agent knows of the
rendezvous may be a second old."""
RENDEZVOUS_TRIES = 6


def miss_members_that_left() -> None:
    """A member that is missing is a change of members, like one that waits to come in.

    torch (`DynamicRendezvousHandler.num_nodes_waiting`,
    `torch/distributed/elastic/rendezvous/dynamic_rendezvous.py`) counts only those that wait. Ranks
    that wait in `init_process_group` for a peer that has failed would do so for half an hour. A
    member that has succeeded closes the rendezvous, and is not missed.
    """
    handler: Any = _rendezvous_module().DynamicRendezvousHandler
    join, count_waiting = handler.next_rendezvous, handler.num_nodes_waiting

    def next_rendezvous(self: Any) -> Any:
        info = join(self)
        try:
            self.members = len(self._state_holder.state.participants)
        except AttributeError as error:
            self.members = 0
            warn_once(MISSES_MEMBERS, error)
        return info

    def num_nodes_waiting(self: Any) -> int:
        waiting = int(count_waiting(self))
        try:
            state = self._state_holder.state
            is_member = self._this_node in state.participants and not state.closed
            is_short = is_member and len(state.participants) < self.members
        except AttributeError as error:
            warn_once(MISSES_MEMBERS, error)
            return waiting
        return waiting or int(is_short)

    handler.next_rendezvous, handler.num_nodes_waiting = next_rendezvous, num_nodes_waiting


def leave_the_rendezvous_open() -> None:
    """An agent that fails leaves the rendezvous to the others.

    torch (`DynamicRendezvousHandler.shutdown`, same file) closes it to all of them for good.
    """
    rendezvous = _rendezvous_module()
    handler: Any = rendezvous.DynamicRendezvousHandler
    close, exit_operation = handler.shutdown, rendezvous._RendezvousExitOp
    rendezvous_error = rendezvous.RendezvousError

    def shutdown(self: Any) -> Any:
        if sys.exc_info()[0] is None:
            return close(self)
        try:
            self._stop_heartbeats()
            deadline = self._get_deadline(self._settings.timeout.close)
            self._op_executor.run(exit_operation(), deadline)
        except rendezvous_error:
            pass
        except AttributeError as error:
            warn_once(LEAVES_OPEN, error)
            return close(self)
        return True

    handler.shutdown = shutdown


def forgive_failures_while_members_change() -> None:
    """Ranks that fail while members change cost none of `max_restarts`.

    They fail because of that mostly, as the first agents that see a change end their ranks. It is
    as if this agent had been first. torch (`LocalElasticAgent._monitor_workers`,
    `torch/distributed/elastic/agent/server/local_elastic_agent.py`) counts it as a failure.
    """
    import time

    from torch.distributed.elastic.agent.server import api

    agent = _agent_class()
    monitor, result_class = agent._monitor_workers, api.RunResult
    healthy = api.WorkerState.HEALTHY
    failed = (api.WorkerState.FAILED, api.WorkerState.UNHEALTHY)

    def monitor_workers(self: Any, group: Any) -> Any:
        result = monitor(self, group)
        try:
            for _ in range(CHECKS_AFTER_FAILURE if result.state in failed else 0):
                if group.spec.rdzv_handler.num_nodes_waiting():
                    return result_class(state=healthy)
                time.sleep(SECONDS_BETWEEN_CHECKS)
        except AttributeError as error:
            warn_once(FORGIVES, error)
        return result

    agent._monitor_workers = monitor_workers


def meet_again_when_a_member_leaves() -> None:
    """Agents meet again where a member left while all told each other their ranks.

    torch (`SimpleElasticAgent._rendezvous`, `torch/distributed/elastic/agent/server/api.py`) gives
    up after a minute. Its store raises DistStoreError, or RuntimeError before torch 2.0.
    """
    import torch.distributed

    agent = _agent_class()
    meet = agent._rendezvous
    store_error: Any = getattr(torch.distributed, "DistStoreError", RuntimeError)

    def rendezvous(self: Any, group: Any) -> Any:
        for _ in range(RENDEZVOUS_TRIES - 1):
            try:
                return meet(self, group)
            except store_error as error:
                print("torchrun: a member left while all met:", error, file=sys.stderr)
        return meet(self, group)

    agent._rendezvous = rendezvous


def _rendezvous_module() -> Any:
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous

    return dynamic_rendezvous


def _agent_class() -> Any:
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent

    return LocalElasticAgent


ELASTIC_PATCHES = (
    (miss_members_that_left, MISSES_MEMBERS),
    (leave_the_rendezvous_open, LEAVES_OPEN),
    (forgive_failures_while_members_change, FORGIVES),
    (meet_again_when_a_member_leaves, MEETS_AGAIN),
)
"""Patches, and what is lost without each of them."""
