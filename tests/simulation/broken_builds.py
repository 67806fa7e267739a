"""Builds of Muster with one safeguard taken out: the simulation has to notice each of them, or it proves nothing.

It only removes them; the verdict must notice.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import msgspec

from muster.coordinator.cluster import Node
from muster.coordinator.runtime.partition.answer_lease import AnswerLease
from muster.coordinator.runtime.partition.former_owners import OldLeases
from muster.coordinator.runtime.partition.outbox import Outbox, WriteUnit
from muster.coordinator.sidecar.forwarding.delegated_heartbeats import DelegatedHeartbeats, DelegatedTicket, _Owner
from muster.coordinator.sidecar.forwarding.owners import Outcome, Owners
from muster.coordinator.sidecar.relay.intercept import ClientRequest
from tests.simulation.log_broker import LogBroker


@contextmanager
def without_lease() -> Iterator[None]:
    """An owner answers from memory until it appends."""
    proven = AnswerLease.proven

    def for_ever(self: AnswerLease, _sent_ms: int) -> None:
        proven(self, sys.maxsize)

    with patch.object(AnswerLease, "proven", for_ever):
        yield


@contextmanager
def without_outliving() -> Iterator[None]:
    """A new owner changes groups while the one before it may answer from memory."""
    with patch.object(OldLeases, "left_ms", lambda *_: 0):
        yield


@contextmanager
def without_fence() -> Iterator[None]:
    """The log takes what a deposed owner appends."""
    with patch.object(LogBroker, "fences", new=False):
        yield


@contextmanager
def without_waiting_for_durability() -> Iterator[None]:
    """Replies leave as soon as their events are handed to the log."""
    submit = Outbox.submit

    def hand_over(self: Outbox, unit: WriteUnit) -> None:
        submit(self, msgspec.structs.replace(unit, settled=lambda _: None))
        self._loop.call_soon(unit.settled, None)

    with patch.object(Outbox, "submit", hand_over):
        yield


@contextmanager
def without_asking_the_owner() -> Iterator[None]:
    """A sidecar that was once allowed to answer heartbeats of a member in the owner's name does so for ever."""
    with patch.object(DelegatedTicket, "accept", lambda *_: True):
        yield


@contextmanager
def without_taking_grants_back() -> Iterator[None]:
    """A sidecar keeps answering heartbeats of a group that has changed, while the owner's lease lasts."""
    with patch.object(DelegatedHeartbeats, "revoke", lambda *_: None):
        yield


@contextmanager
def without_heartbeat_reports() -> Iterator[None]:
    """A sidecar does not report to the owner the members whose heartbeats it has answered."""
    with patch.object(_Owner, "note", lambda *_: None):
        yield


@contextmanager
def with_another_member_id() -> Iterator[None]:
    """A repeated join proposes another member id to the next owner."""
    outcome = Owners.outcome

    async def anew(self: Owners, node: Node | None, request: ClientRequest, frame: bytes, member_uuid: str) -> Outcome:
        return await outcome(self, node, request, frame, self._service.new_uuid() if member_uuid else "")

    with patch.object(Owners, "outcome", anew):
        yield
