"""The English phrases for members and causes, so that all outputs use the same words.

They are based on `events.causes.TEXTS`, with the member's name, and with numbers if the history has them.
"""

from collections.abc import Iterable, Sequence

from kio.schema.errors import ErrorCode

from muster.events.causes import TEXTS, Cause
from muster.events.events import CoordinatorPaused, Why
from muster.events.state import Member
from muster.ranges import ranges_of
from muster.replay.rebalances.rebalance import Actor, MemberRef, Outcome, PartitionMove, Rebalance, TopicPartitions
from muster.replay.text.grammar import few, plural
from muster.replay.text.times import duration, setting

_UUID_LENGTH = 36
_UUID_SHOWN = 8


def short_member_id(member_id: str) -> str:
    """Shorten the member id's uuid to eight digits: enough to distinguish members, and to search for them."""
    uuid = member_id[-_UUID_LENGTH:]
    if len(uuid) == _UUID_LENGTH and uuid.count("-") == 4 and uuid[8] == "-":
        return member_id[: -_UUID_LENGTH + _UUID_SHOWN] + "…"
    return member_id


def name(member: MemberRef) -> str:
    """Return the member's name in a sentence: its instance id, or its shortened member id."""
    return member.group_instance_id or short_member_id(member.member_id)


def host(client_host: str) -> str:
    return client_host.removeprefix("/")


def process(member: MemberRef) -> str:
    """Return 'HOST, client CLIENT_ID'."""
    return f"{host(member.client_host) or 'unknown host'}, client {member.client_id or '(none)'}"


def who(member: MemberRef) -> str:
    """E.g. "static member 'billing-2' (10.0.0.7, client rdkafka)"."""
    kind = "dynamic" if member.group_instance_id is None else "static"
    return f"{kind} member '{name(member)}' ({process(member)})"


def plainly(member: MemberRef) -> str:
    """Like `who`, but without 'static member', for sentences that already say so: "'billing-2' (10.0.0.7, client
    rdkafka)".
    """
    return f"'{name(member)}' ({process(member)})"


def several(members: Sequence[MemberRef]) -> str:
    """E.g. 'a, b and 4 others'; a single member in full."""
    if not members:
        return "a member"
    if len(members) == 1:
        return who(members[0])
    static = sum(member.group_instance_id is not None for member in members)
    kind = "static " if static == len(members) else "" if static else "dynamic "
    return f"{len(members)} {kind}members ({named(map(name, members))})"


def named(names: Iterable[str]) -> str:
    """Return the first few names, in quotes."""
    return few([f"'{each}'" for each in names])


def rearmed_text(event: CoordinatorPaused) -> str:
    """'3 sessions of partition 5 were re-armed in full': sessions of all groups of the partition."""
    were = "was" if event.sessions == 1 else "were"
    return f"{plural(event.sessions, 'session')} of partition {event.partition} {were} re-armed in full"


def cause_text(why: Why, actors: Sequence[Actor], planned: str = "") -> str:
    """Describe a cause, including the silence before an expired session, who asked for a removal, the client's reason.

    `planned` is text about plans to be added.
    """
    if why.cause is Cause.SESSION_EXPIRED and len(actors) == 1:
        return f"{who(actors[0])} was not heard from {_silence(actors[0])}"
    template = _BY_ANOTHER if _is_by_another(why, actors) else TEXTS[why.cause]
    text = template.format(member=_subject(why.cause, actors))
    if len(actors) > 1 and "{member}" in template:
        text = text.replace(" was ", " were ", 1).replace("its ", "their ")
    text = f"{text}{asked_by(why)}" if template is _BY_ANOTHER else f"{_by_administrator(text, why)}{planned}"
    if says_something(why.client_reason):
        text += f'; the client says: "{why.client_reason}"'
    return text


BOILERPLATE = (
    "need to re-join with the given member-id",
    "rebalance failed due to MemberIdRequiredException",
    "group is already rebalancing",
    "encountered UNKNOWN_MEMBER_ID from",
    "rebalance failed due to UnknownMemberIdException",
)
"""Prefixes of reasons that clients themselves send (KIP-800) and that add nothing to the event."""

_SAID_BY_CLIENTS = (
    "rebalance failed due to",
    "encountered ",
    "cached metadata has changed",
    "the subscription has changed",
    "need to revoke partitions",
    "consumer pro-actively leaving the group",
)
"""Prefixes of other reasons that the Java client itself sends when it joins (KIP-800), which are informative."""

_BY_ANOTHER = "{member} was removed"
"""The text for a LeaveGroup that another client sent."""


def is_of_another(why: Why, member: Member | MemberRef) -> bool:
    """Return whether the request came from another client: its client id or host is not the member's."""
    return why.client_id is not None and (why.client_id, why.client_host) != (member.client_id, member.client_host)


def _is_by_another(why: Why, actors: Sequence[Actor]) -> bool:
    return why.cause is Cause.MEMBER_LEFT and bool(actors) and all(is_of_another(why, each) for each in actors)


_REMOVED = "member was removed by an admin"
"""Kafka's AdminClient puts this before the administrator's own reason."""


def says_something(client_reason: str | None) -> bool:
    """Return whether the client's reason is worth showing."""
    return bool(client_reason) and not (client_reason or "").startswith(BOILERPLATE) and client_reason != _REMOVED


def is_of_application(client_reason: str | None) -> bool:
    """Return whether a reason to join came from the application (KIP-568), not from the client library."""
    return says_something(client_reason) and not (client_reason or "").startswith(_SAID_BY_CLIENTS)


def clients_say(reasons: Iterable[str | None]) -> str:
    """'the clients say: "a", "b" and 2 others', the first few distinct ones. `reasons`: one for each client."""
    said = [f'"{each}"' for each in reasons]
    return f"{'the client says' if len(said) == 1 else 'the clients say'}: {few(list(dict.fromkeys(said)))}"


def is_close(client_reason: str | None) -> bool:
    """Return whether the client's reason says that it left because it was closed; not all clients give one."""
    return (client_reason or "").startswith("the consumer is being closed")


ASKED_FOR = frozenset(
    {
        Cause.MEMBER_REMOVED_BY_ADMIN,
        Cause.REGISTRATION_WITHDRAWN,
        Cause.LEARNERS_PROMOTED,
        Cause.RETIREMENT_WITHDRAWN,
        Cause.GROUP_CONFIGURED,
        Cause.REBALANCE_REQUESTED,
        Cause.INSTANCES_REGISTERED,
        Cause.MEMBERS_RETIRED,
        Cause.GROUP_RELEASED,
    }
)
"""Causes that are an administrator's requests, not a member's."""


def _by_administrator(text: str, why: Why) -> str:
    """Add the administrator to the text, if the cause is an administrator's request."""
    if why.cause not in ASKED_FOR or why.client_id is None:
        return text
    someone = "an administrator"
    if why.cause is Cause.MEMBER_REMOVED_BY_ADMIN or someone not in text:
        return text + asked_by(why)
    return text.replace(someone, f"{someone} ({_requester(why)})", 1)


def asked_by(why: Why) -> str:
    """', asked for by client admin at 10.0.0.9, User:admin'; empty if there was no request."""
    return f", asked for by {_requester(why)}" if why.client_id is not None else ""


def _requester(why: Why) -> str:
    return ", ".join(filter(None, (f"client {why.client_id} at {host(why.client_host or '')}", why.principal)))


_TEXTS_WITH_KIND = frozenset(
    {
        Cause.NEW_DYNAMIC_MEMBER,
        Cause.NEW_STATIC_MEMBER,
        Cause.LEADER_REJOINED,
        Cause.STANDBY_CALLED,
        Cause.STANDBY_TOOK_OVER,
        Cause.STANDBY_UNFIT,
    }
)
"""Causes whose texts already say whether the member is static."""


def _subject(cause: Cause, actors: Sequence[Actor]) -> str:
    if len(actors) == 1 and cause in _TEXTS_WITH_KIND:
        return plainly(actors[0])
    return several(actors)


def _silence(member: Actor) -> str:
    if member.silence_ms is None or member.session_timeout_ms is None:
        return "within its session timeout"
    return f"for {duration(member.silence_ms)} (session timeout {setting(member.session_timeout_ms)})"


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, or its number if it is unknown."""
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return str(code)


def generations(rebalance: Rebalance) -> str:
    """'Generation 7 -> 8', or 'After generation 7' if there is no next one."""
    if rebalance.to_generation is None:
        return f"After generation {rebalance.from_generation}"
    return f"Generation {rebalance.from_generation} -> {rebalance.to_generation}"


def headline(rebalance: Rebalance) -> str:
    """Return the rebalance in one sentence: its generations, its cause, and how it ended unless it ended stable."""
    sentence = f"{generations(rebalance)}: {rebalance.trigger.text}"
    folded = len(rebalance.folded) + rebalance.folded_left_out
    if folded:
        sentence += f"; {plural(folded, 'more cause')} folded in"
    ending = _ENDINGS[rebalance.outcome]
    return f"{sentence} ({ending})" if ending else sentence


_ENDINGS = {
    Outcome.STABLE: "",
    Outcome.EMPTIED: "the group was empty then",
    Outcome.SUPERSEDED: "superseded by the next one before it had an assignment",
    Outcome.RUNNING: "still running",
    Outcome.UNKNOWN: "how it ended is not in the log",
}


JOIN_ENDS = {
    Cause.ALL_JOINED: "all members had joined",
    Cause.JOIN_PHASE_TIMED_OUT: "the rebalance timeout had passed",
    Cause.INITIAL_DELAY_ELAPSED: "the initial rebalance delay was over",
    Cause.GROUP_RELEASED: "the group was released to the upstream cluster",
}
"""The end of a join phase as text, after 'until'."""


def count_of(topics: Sequence[TopicPartitions]) -> int:
    return sum(len(entry.partitions) for entry in topics)


def partitions(topics: Sequence[TopicPartitions]) -> str:
    """'orders 0-3, 7; payments 1'."""
    return "; ".join(f"{entry.topic} {_ranges(entry.partitions)}" for entry in topics)


def _ranges(numbers: Sequence[int]) -> str:
    return ", ".join(f"{each[0]}-{each[-1]}" if len(each) > 1 else f"{each[0]}" for each in ranges_of(numbers))


def move_text(move: PartitionMove) -> str:
    """'billing-1 -> billing-2: orders 0-3'."""
    previous = name(move.previous) if move.previous else "(nobody)"
    owner = name(move.owner) if move.owner else "(nobody)"
    return f"{previous} -> {owner}: {partitions(move.partitions)}"
