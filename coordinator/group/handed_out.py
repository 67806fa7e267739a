"""Member ids that were handed out (KIP-394), and their outcome when a join phase waited for them.

The event that ends the phase records the clients that hold an outstanding id. `soft.pending_members` has the ids that
are expected back; `join.py` and `held_joins.py` decide when one is handed out, and for how long.

A client that intends to join returns within a round trip, so only ids that were outstanding for a second are noted, and
16 of them individually: a client may request any number of ids. A phase that began while an id was outstanding waits
for it too.
"""

from itertools import islice, takewhile
from typing import Any, Final

from muster.coordinator.group.commands import Caller
from muster.coordinator.group.soft_state import PendingMember, Session
from muster.coordinator.group.turn import Turn
from muster.events.ids import MemberId
from muster.events.state import GroupState, HandedOutId, HandedOutIdOutcome

NOTED_IDS_MAX: Final = 16
NOTED_FROM_MS: Final = 1_000
CLIENT_ID_CHARS_MAX: Final = 255
"""The characters of a client id that are kept, as in a member id: a client may send 32,767 bytes."""


def expect_back(turn: Turn, member_id: MemberId, caller: Caller, *, session_timeout_ms: int, deadline_ms: int) -> None:
    """Expect the sender back with the id until the deadline (P1)."""
    turn.soft.pending_members[member_id] = PendingMember(
        timeout_ms=session_timeout_ms,
        deadline_ms=deadline_ms,
        last_seen_ms=turn.now_ms,
        client_id=caller.client_id[:CLIENT_ID_CHARS_MAX],
        client_host=caller.client_host,
    )


def settle(turn: Turn, member_id: MemberId, outcome: HandedOutIdOutcome) -> None:
    """Stop expecting the holder of the id; note it if a join phase has waited for it."""
    pending = turn.soft.pending_members.pop(member_id, None)
    if pending is None or turn.image.state is not GroupState.PREPARING_REBALANCE:
        return
    if turn.now_ms - pending.last_seen_ms < NOTED_FROM_MS:
        return
    if len(turn.soft.settled_ids) < NOTED_IDS_MAX:
        turn.soft.settled_ids = (*turn.soft.settled_ids, _noted(turn, member_id, pending, outcome))
    else:
        turn.soft.settled_ids_more += 1


def forget_oldest(turn: Turn, count: int) -> None:
    """Stop expecting the holders of the oldest ids."""
    pending = turn.soft.pending_members
    for oldest in tuple(islice(pending, count)):
        del pending[oldest]
    if turn.image.state is GroupState.PREPARING_REBALANCE:
        turn.soft.settled_ids_more += count


def take_noted(turn: Turn) -> dict[str, Any]:
    """Return the fields about handed-out ids for the event that ends a join phase, and clear what was noted."""
    soft = turn.soft
    room = NOTED_IDS_MAX - len(soft.settled_ids)
    # In the order in which they were handed out: after one that is too young there are only younger ones.
    oldest = takewhile(
        lambda item: turn.now_ms - item[1].last_seen_ms >= NOTED_FROM_MS, islice(soft.pending_members.items(), room)
    )
    still_out = [_noted(turn, *item, HandedOutIdOutcome.STILL_OUT) for item in oldest]
    more = soft.settled_ids_more + (len(soft.pending_members) - room if len(still_out) == room else 0)
    noted = (*soft.settled_ids, *still_out)
    soft.settled_ids, soft.settled_ids_more = (), 0
    return {"handed_out_ids": noted, "handed_out_ids_more": more}


def _noted(turn: Turn, member_id: MemberId, pending: Session, outcome: HandedOutIdOutcome) -> HandedOutId:
    client = pending if isinstance(pending, PendingMember) else None
    return HandedOutId(
        member_id=member_id,
        client_id=client.client_id if client else "",
        client_host=client.client_host if client else "",
        age_ms=turn.now_ms - pending.last_seen_ms,
        outcome=outcome,
    )
