"""Statements about partitions that members had given up by the time they rejoined, from their decoded subscriptions."""

from collections.abc import Iterator

from muster.events.consumer_protocol import owned_partitions
from muster.events.state import Member
from muster.replay.incidents.episode.acts import Rejoined
from muster.replay.incidents.episode.episode import Episode
from muster.replay.incidents.evidence.naming import process_name
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.rebalances.moves import TopicPartition, by_topic
from muster.replay.rebalances.rebalance import Rebalance
from muster.replay.rebalances.wording import partitions
from muster.replay.text.times import instant


def given_up(rebalance: Rebalance, episode: Episode) -> Iterator[Statement]:
    """Yield the partitions that members with a cooperative assignor gave up before they rejoined (KIP-429)."""
    for act in episode.within(rebalance):
        if not isinstance(act, Rejoined) or act.before is None:
            continue
        before, after = _owned(act.before), _owned(act.member)
        if before is None or after is None or not before - after:
            continue
        gone = partitions(by_topic(before - after))
        yield Statement(
            text=f"{process_name(act.member)} rejoined without {gone}, which it had revoked",
            grade=Grade.RECORDED,
            at=instant(act.at_ms),
            seqs=(act.seq,),
        )


def _owned(member: Member) -> frozenset[TopicPartition] | None:
    return owned_partitions(member.protocols[0].metadata) if member.protocols else None
