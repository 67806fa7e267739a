"""Duels: two live processes with one instance id are recorded with both hosts, even if they cannot be fenced."""

from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group import duels
from muster.events.causes import Cause
from muster.events.events import MemberFenced
from muster.events.ids import UNKNOWN_MEMBER_ID, MemberId
from tests.coordinator.group.client import Client
from tests.coordinator.group.harness import Harness


def fences(h: Harness, cause: Cause) -> list[tuple[str | None, str | None]]:
    """Host of the process that was refused or has joined, and host of the one that has, or had, the instance id."""
    found = [event for event in h.events if isinstance(event, MemberFenced) and event.why.cause is cause]
    return [(event.why.client_host, event.current_client_host) for event in found]


def duellists(h: Harness) -> tuple[Client, Client]:
    """Two processes with one instance id; the second has just taken it from the first."""
    first = h.static("a", host="/10.0.0.1")
    h.stable_group(first, h.static("b"))
    second = first.restarted(host="/10.0.0.2")
    second.join()
    return first, second


def test_a_clean_restart_is_not_a_duel() -> None:
    """The old process sends no more requests."""
    h = Harness()
    _, second = duellists(h)
    second.restarted(host="/10.0.0.3").join()
    assert fences(h, Cause.INSTANCE_FENCED) == []
    assert fences(h, Cause.INSTANCE_DUEL) == []


def test_an_overlap_is_a_fence_and_no_duel() -> None:
    """A rolling deployment that starts the new process before the old one has ended."""
    h = Harness()
    first, second = duellists(h)
    first.heartbeat()
    assert fences(h, Cause.INSTANCE_FENCED) == [("/10.0.0.1", "/10.0.0.2")]
    second.heartbeat()
    assert fences(h, Cause.INSTANCE_DUEL) == []


def test_a_fenced_process_that_rejoins_is_a_duel() -> None:
    """Known bug S16: a supervisor restarts the fenced process for ever."""
    h = Harness()
    first, _ = duellists(h)
    first.heartbeat()
    first.restarted().join()
    assert fences(h, Cause.INSTANCE_DUEL) == [("/10.0.0.1", "/10.0.0.2")]


def test_clients_that_cannot_be_fenced_are_found_out() -> None:
    """Known bug S19: heartbeats without an instance id are answered 25, and the client starts over."""
    unfenceable: dict[str, Any] = {"group_instance_id": None}
    h = Harness()
    first, second = duellists(h)
    for _ in range(2):
        first.heartbeat(**unfenceable)
        first.member_id = first.restarted().member_id
        first.join()
        second.heartbeat(**unfenceable)
        second.member_id = second.restarted().member_id
        second.join()
    hosts = ("/10.0.0.1", "/10.0.0.2")
    assert fences(h, Cause.INSTANCE_DUEL) == [hosts, hosts[::-1], hosts, hosts[::-1]]


def test_any_request_of_the_old_process_is_a_sign_of_life() -> None:
    """Commit, sync, join and leave under the member id that lost its instance id."""
    signs: tuple[Callable[[Client], object], ...] = (
        lambda client: client.commit(group_instance_id=None),
        lambda client: client.sync(group_instance_id=None),
        lambda client: client.join(),
        lambda client: client.leave(),
    )
    for sign in signs:
        h = Harness()
        first, _ = duellists(h)
        sign(first)
        assert len(fences(h, Cause.INSTANCE_FENCED)) == 1
        first.restarted().join()
        assert len(fences(h, Cause.INSTANCE_DUEL)) == 1


def test_a_commit_under_an_instance_id_of_another_is_recorded() -> None:
    """Its sender may never have had it: after a takeover that is unknown. A commit refused for another reason is not
    recorded.
    """
    h = Harness()
    h.stable_group(h.static("a", host="/10.0.0.2"))
    stranger = h.static("a", host="/10.0.0.1", member_id=MemberId("x"))
    assert stranger.commit().error is ErrorCode.fenced_instance_id
    assert fences(h, Cause.INSTANCE_FENCED) == [("/10.0.0.1", "/10.0.0.2")]
    assert stranger.commit(group_instance_id=None).error is ErrorCode.unknown_member_id
    assert len(fences(h, Cause.INSTANCE_FENCED)) == 1


def test_duels_are_recorded_at_a_limited_rate() -> None:
    """A restart loop does not fill the log; suppressed records are counted."""
    h = Harness()
    first, second = duellists(h)
    for _ in range(20):
        first.heartbeat()
        first.restarted().join()
        second.heartbeat()
        second = second.restarted()
        second.join()
    assert len(fences(h, Cause.INSTANCE_DUEL)) == 10
    assert len(fences(h, Cause.INSTANCE_FENCED)) == 10


def test_a_process_silent_for_ten_minutes_has_ended() -> None:
    """A process that takes over the id after that is no rival; up to exactly ten minutes it is."""
    for ago_ms, duels_recorded in ((600_000, 1), (600_001, 0)):
        h = Harness()
        first = h.static("a", session_timeout_ms=1_800_000)
        h.stable_group(first, h.static("b", session_timeout_ms=1_800_000))
        second = first.restarted()
        second.join()
        first.heartbeat()
        h.sleep(ago_ms)
        first.restarted().join()
        assert len(fences(h, Cause.INSTANCE_DUEL)) == duels_recorded


def test_a_group_keeps_a_thousand_replaced_ids() -> None:
    """More than have restarted lately; a client that invents names cannot fill the memory."""
    assert duels.REPLACED_MEMBERS_MAX == 1_000


def test_a_fenced_join_that_is_sent_again_does_not_take_the_instance_id_back() -> None:
    """Its response was 82 and got lost; the retry gets 82 again. After the instance is removed the id is unknown."""
    h = Harness()
    h.stable_group(h.static("b"))
    first, second = h.static("a"), h.static("a")
    proposed = first.join().command.proposed_member_id  # type: ignore[union-attr]
    second.join()
    again: dict[str, Any] = {"member_id": UNKNOWN_MEMBER_ID, "proposed_member_id": proposed}
    assert first.join(**again).error is ErrorCode.fenced_instance_id
    assert h.member_of("a") != proposed
    h.leave_instance("a")
    assert first.join(**again).error is ErrorCode.unknown_member_id
    assert proposed not in h.live.members


def test_of_more_replaced_ids_than_a_group_keeps_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instances that restart under ever new names would fill the memory."""
    monkeypatch.setattr(duels, "REPLACED_MEMBERS_MAX", 2)
    h = Harness()
    clients = [h.static(name) for name in "abc"]
    h.stable_group(*clients)
    replaced = [client.member_id for client in clients]
    for client in clients:
        client.restarted().join()
    assert list(h.soft.replaced_members) == replaced[1:]
