"""Topics that a group subscribes and that nobody was assigned: what a Stable group's own record bears of them."""

from muster.events.consumer_protocol import CONSUMER_PROTOCOL_TYPE, assigned_partitions, subscribed_topics
from muster.events.state import Group, GroupState


def unread_topics(group: Group) -> frozenset[str]:
    """The topics that members of a Stable group subscribe and of which no partition is assigned.

    None of them where a subscription or an assignment cannot be read: then it is not known.
    """
    image = group.image
    if image.state is not GroupState.STABLE or image.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return frozenset()
    subscribed: set[str] = set()
    assigned: set[str] = set()
    for member in group.members.values():
        if member.is_inactive:
            continue
        topics = subscribed_topics(member.metadata_for(image.protocol_name))
        share = assigned_partitions(group.assignment_of(member))
        if topics is None or share is None:
            return frozenset()
        subscribed |= topics
        assigned.update(topic for topic, _ in share)
    return frozenset(subscribed - assigned)
