"""Tables and Markdown count what they leave out and list unreadable records; a complete result has no such notes."""

from collections.abc import Callable
from typing import Final

import msgspec
import pytest

from muster.events.ids import GroupId, GroupInstanceId, MemberId
from muster.replay.form import Format
from muster.replay.rebalances.rebalance import MemberRef, Movement, PartitionMove, TopicPartitions
from muster.replay.render.as_json import Result
from muster.replay.render.verify_table import COMPACTED_SHOWN
from muster.replay.render.why_table import MOVES_SHOWN, movement_text
from muster.replay.results.digest import Digest
from muster.replay.results.groups import Groups
from muster.replay.verify.finding import Check, Compacted, LogFinding, Verified
from tests.replay.results.test_overview import overview
from tests.replay.stories import a_night
from tests.replay.told import printed

DIGEST: Final = Digest(
    log="memory",
    window=None,
    groups=3,
    quiet=2,
    told=8,
    without_rebalance=0,
    kinds={},
    storms=(),
    incidents=(),
    more=0,
)
FINDING: Final = LogFinding(
    check=Check.SEQ, partition=2, offset=7, group_id=GroupId("orders"), seq=5, expected="seq 4", found="seq 5"
)
VERIFIED: Final = Verified(
    log="memory",
    partitions=4,
    records=90,
    groups=20,
    events=80,
    decided_again=80,
    compacted_groups=0,
    compacted=(),
    strangers=0,
    passed_over=0,
    unread=(),
    found=1,
    findings=(FINDING,),
    advice={},
)
COMPACTED: Final = tuple(
    Compacted(group_id=GroupId(f"g{number:02}"), partition=0, missing=number + 1, unchecked=3) for number in range(12)
)
NIGHT: Final = overview(a_night().stored_records())
PARTIAL: Final = [
    (DIGEST, "more", 26, "... and 26 more, which cost no more than these"),
    (DIGEST, "without_rebalance", 2, "2 incidents had no rebalance"),
    (DIGEST, "kinds", {"crash": 7, "duel": 1}, "kinds: crash 7, duel 1"),
    (VERIFIED, "found", 250, "... and 249 more findings that are not listed"),
    (VERIFIED, "strangers", 1, "Foreign 1 record that no owner wrote"),
    (VERIFIED, "passed_over", 3, "Repaired 3 records that could not be read, skipped"),
    (VERIFIED, "unread", ("partition 1 is gone",), "Not read partition 1 is gone"),
    (VERIFIED, "advice", {Check.SEQ: "ask who wrote it"}, "What to do seq: ask who wrote it"),
    (NIGHT, "missing_events", 4, "orders: 4 events are no longer in the log"),
    (NIGHT, "unknown_events", 5, "orders: 5 events of unknown types"),
    (NIGHT, "quarantined", ("partition 3, offset 20",), "orders is quarantined: partition 3, offset 20"),
]


def but(result: Result, field: str, value: object) -> Result:
    """Return the result with another value; for groups, in its one line."""
    if isinstance(result, Groups):
        (line,) = result.groups
        return msgspec.structs.replace(result, groups=(msgspec.structs.replace(line, **{field: value}),))
    return msgspec.structs.replace(result, **{field: value})


def in_a_table(result: Result) -> str:
    return " ".join(printed(result, width=200).split())


def in_markdown(result: Result) -> str:
    """Return the text without the parts that only the format needs."""
    return " ".join(printed(result, Format.MD).replace("\\", "").replace("*", "").split())


@pytest.mark.parametrize("shown", [in_a_table, in_markdown])
@pytest.mark.parametrize(("whole", "field", "value", "sentence"), PARTIAL)
def test_an_incomplete_result_says_so(
    whole: Result, field: str, value: object, sentence: str, shown: Callable[[Result], str]
) -> None:
    """Once; a complete result does not have the note."""
    (begin, _, end) = sentence.partition(str(value)) if isinstance(value, int) else ("", "", sentence)
    assert shown(but(whole, field, value)).count(sentence) == 1
    assert max((begin, end), key=len) not in shown(whole)


def test_of_many_groups_that_were_compacted_the_first_are_named() -> None:
    """With the number of missing events for each, and how many other groups there are."""
    some = msgspec.structs.replace(VERIFIED, compacted=COMPACTED[:COMPACTED_SHOWN], compacted_groups=COMPACTED_SHOWN)
    reported = in_a_table(some)
    assert "g00: 1 event no longer in the log, 3 not recomputed" in reported
    assert "g09: 10 events no longer in the log, 3 not recomputed" in reported
    assert "more groups" not in reported
    reported = in_a_table(msgspec.structs.replace(VERIFIED, compacted=COMPACTED, compacted_groups=40))
    assert "g10" not in reported
    assert "... and 30 more groups" in reported


def member(name: str) -> MemberRef:
    return MemberRef(
        member_id=MemberId(f"{name}-id"), group_instance_id=GroupInstanceId(name), client_id="app", client_host="/::1"
    )


def test_the_first_of_many_moves_are_shown_and_a_missing_assignment_is_named() -> None:
    """The counts include all of them."""
    moves = tuple(
        PartitionMove(
            previous=member("a"),
            owner=member("b"),
            partitions=(TopicPartitions(topic=f"t{n}", partitions=(n,)),),
            count=1,
        )
        for n in range(MOVES_SHOWN + 2)
    )
    whole = Movement(moves=moves[:MOVES_SHOWN], moved=MOVES_SHOWN, gained=0, lost=2, stayed=0, undecodable=())
    assert str(movement_text(whole)).splitlines() == [
        f"partitions: {MOVES_SHOWN} changed owner, 2 without owner",
        *(f"a -> b: t{n} {n}" for n in range(MOVES_SHOWN)),
    ]
    cut = msgspec.structs.replace(whole, moves=moves, undecodable=(member("c"), member("d")))
    assert str(movement_text(cut)).splitlines()[-2:] == [
        "... and 2 more; --format json has all of them",
        "no consumer assignment can be read from c and d",
    ]
    assert str(movement_text(msgspec.structs.replace(whole, moves=(), moved=0, lost=0))) == "no partitions"
