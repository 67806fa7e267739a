"""The histories of harnesses that were played by the rules, as a log has them."""

from collections.abc import Sequence

from muster.coordinator.group.settings import GroupSettings
from muster.events.consumer_protocol import encode_assignment
from muster.events.events import CoordinatorElected, CoordinatorReady
from muster.events.ids import MemberId
from muster.replay.history.items import Coordinated, Happened, LogPosition, Told, with_gaps
from tests.coordinator.group.client import Client
from tests.coordinator.group.harness import Harness
from tests.replay.whole import History

PARTITIONS = 12


def history_of(harness: Harness, *given: GroupSettings) -> History:
    """Return the harness's recorded history, with its coordinators and their settings."""
    by_epoch = given or (harness.settings,)
    reads: list[Told] = [elected(0, by_epoch[0])]
    epoch = 0
    for offset, event in enumerate(harness.events):
        position = LogPosition(partition=0, offset=offset, timestamp_ms=event.why.decided_ms)
        if event.owner_epoch != epoch:
            epoch = event.owner_epoch
            reads.append(elected(epoch, by_epoch[min(epoch, len(by_epoch) - 1)]))
            reads.append(ready(epoch, event.why.decided_ms))
        reads.append(Happened(position=position, event=event))
    return History(group_id=harness.group_id, log="harness", items=tuple(with_gaps(reads)))


def elected(epoch: int, given: GroupSettings) -> Coordinated:
    """Return the owner's election, with its settings."""
    event = CoordinatorElected(
        partition=0,
        owner_epoch=epoch,
        owner="a:1",
        elected_ms=0,
        version="0",
        format_level=1,
        settings={
            "group.initial.rebalance.delay.ms": str(given.initial_rebalance_delay_ms),
            "group.min.session.timeout.ms": str(given.min_session_timeout_ms),
            "group.max.session.timeout.ms": str(given.max_session_timeout_ms),
            "group.max.size": str(given.max_size),
        },
    )
    return Coordinated(position=LogPosition(partition=0, offset=0, timestamp_ms=0), event=event)


def ready(epoch: int, ready_ms: int, *, seen_ms: int | None = None) -> Coordinated:
    """Return the end of its takeover; `seen_ms`: when the former owner last recorded that it was alive."""
    event = CoordinatorReady(
        partition=0,
        owner_epoch=epoch,
        owner="a:1",
        ready_ms=ready_ms,
        took_ms=0,
        events_read=0,
        groups=1,
        members=0,
        incarnation_max=0,
        owner_before_seen_ms=seen_ms,
    )
    return Coordinated(position=LogPosition(partition=0, offset=0, timestamp_ms=ready_ms), event=event)


# ---- what members do together -------------------------------------------------------------------


def share(members: Sequence[MemberId]) -> dict[MemberId, bytes]:
    """Return partitions 0 to 11 of `orders`, in ranges, by the order of the member ids."""
    shared = sorted(members)
    parts = [PARTITIONS * position // len(shared) for position in range(len(shared) + 1)]
    return {
        member_id: encode_assignment({"orders": range(parts[position], parts[position + 1])})
        for position, member_id in enumerate(shared)
    }


def sync(*clients: Client) -> None:
    """Let all members sync, the leader last, with an assignment for all members that it was shown."""
    for client in sorted(clients, key=lambda client: client.is_leader):
        assert client.joined is not None
        client.sync(share([member.member_id for member in client.joined.members]) if client.is_leader else None)


def stable(*clients: Client) -> tuple[Client, ...]:
    """Let them form a group."""
    clients[0].harness.form(*clients)
    sync(*clients)
    return clients


def rejoin(*clients: Client, after_ms: int = 400, with_them: Sequence[Client] = ()) -> None:
    """Let them notice the rebalance and rejoin one after another, as others have; then all sync."""
    for client in clients:
        client.harness.sleep(after_ms)
        client.join()
    sync(*clients, *with_them)


def alive(harness: Harness, duration_ms: int, *clients: Client) -> None:
    """Let time pass, while these members heartbeat."""
    while duration_ms > 0:
        step = min(duration_ms, 3_000)
        harness.sleep(step)
        for client in clients:
            client.heartbeat()
        duration_ms -= step
