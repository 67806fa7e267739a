"""`diff`: the differences in a group between two times."""

import msgspec

from muster.coordinator.group.commands import ConfigOperation
from muster.events.causes import Cause
from muster.replay.history.items import Happened
from muster.replay.history.window import At, AtGeneration, AtSeq, AtTime
from muster.replay.results.diff import Diff, DiffFold
from muster.replay.results.state import StateFold
from tests.coordinator.group.client import protocols, subscription
from tests.coordinator.group.harness import Harness
from tests.replay.histories import Script
from tests.replay.played import alive, history_of, rejoin, stable
from tests.replay.stories import a_night
from tests.replay.whole import History


def diff(history: History, before: At | AtGeneration, after: At | AtGeneration) -> Diff | None:
    """Return the comparison; None if the log does not have both."""
    fold = DiffFold(history.group_id, history.log, before, after)
    for item in history.items:
        if not fold.feed(item):
            break
    result = fold.result()
    return result if isinstance(result, Diff) else None


def test_members_partitions_and_settings() -> None:
    """One joined, one left, one restarted, one subscribed to other topics; 12 partitions moved or stayed."""
    h = Harness()
    a, b, _ = stable(h.static("a"), h.static("b"), h.static("c"))
    first = AtSeq(h.events[-1].seq)
    h.leave_instance("c")
    rejoin(a, b)
    h.alter(("members.expansion.delay.ms", ConfigOperation.SET, "5000"))
    h.alter(("members.expansion.delay.ms", ConfigOperation.DELETE, None))
    d = h.static("d")
    d.join()
    b.protocols = protocols("range", metadata=subscription("orders", "payments"))
    rejoin(a, b, with_them=(d,))
    a = a.restarted(host="/10.0.0.9")
    a.join()
    h.alter(("members.expansion.delay.ms", ConfigOperation.SET, "5000"))
    alive(h, 1_000, a, b, d)
    found = diff(history_of(h), first, AtSeq(h.events[-1].seq))
    assert found is not None
    assert [member.group_instance_id for member in found.came] == ["d"]
    assert [member.group_instance_id for member in found.went] == ["c"]
    changed = {
        str(change.after.group_instance_id): {f.name: (f.before, f.after) for f in change.fields}
        for change in found.changed
    }
    assert changed["a"]["client_host"] == ("/10.0.0.1", "/10.0.0.9")
    assert "member_id" in changed["a"]
    assert changed["b"] == {"subscription": ("orders", "orders, payments")}
    assert found.stayed == 0
    assert {change.name: change.after for change in found.configs} == {"members.expansion.delay.ms": "5000"}
    assert {change.name for change in found.group} >= {"generation_id"}
    assert found.movement is not None
    assert found.movement.moved + found.movement.stayed == 12
    assert found.movement.moved == found.movement.moves[0].count
    assert found.same_life


def test_generations_are_as_of_their_assignments() -> None:
    """The group is that of the last incarnation; a generation that never existed is not found."""
    h = Harness()
    a, b = stable(h.static("a"), h.static("b"))
    h.leave_instance("b")
    rejoin(a)
    history = history_of(h)
    found = diff(history, AtGeneration(1), AtGeneration(2))
    assert found is not None
    assert (found.before.generation_id, found.after.generation_id) == (1, 2)
    assert [member.group_instance_id for member in found.went] == ["b"]
    assert found.movement is not None
    assert (found.movement.moved, found.movement.lost) == (6, 0)
    assert diff(history, AtGeneration(1), AtGeneration(9)) is None
    assert b.instance == "b"


def test_a_time_does_not_differ_from_itself() -> None:
    """All members stay, no partition moves."""
    h = Harness()
    stable(h.static("a"), h.dynamic("b"))
    here = AtSeq(h.events[-1].seq)
    found = diff(history_of(h), here, here)
    assert found is not None
    assert (found.came, found.went, found.changed, found.group, found.configs) == ((), (), (), (), ())
    assert found.stayed == 2
    assert found.movement is not None
    assert (found.movement.moves, found.movement.stayed) == ((), 12)


def test_another_life_and_assignments_of_others() -> None:
    """A group that was created again is reported; moves are unknown if an assignment is no consumer's."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    h.leave_instance("a")
    h.delete()
    assert a.instance == "a"
    seq = h.events[-1].seq
    h.sleep(10_000)
    h.stable_group(h.static("b"))
    history = history_of(h)
    found = diff(history, AtSeq(h.events[-1].seq), AtSeq(h.events[-1].seq))
    assert found is not None
    assert found.movement is None
    assert diff(history, AtSeq(seq + 1_000), AtSeq(1)) is None
    renamed = msgspec.structs.replace(history, log="elsewhere")
    other = diff(renamed, AtSeq(1), AtSeq(1))
    assert other is not None
    assert other.log == "elsewhere"


def test_a_member_recreated_with_the_group_is_compared_across_its_lives() -> None:
    """Another principal of the same instance is reported; so is that seqs refer to the last incarnation."""
    script = Script().created()
    script.start(script.joined(script.member("a"))).complete().stabilize({"a": {"orders": [0]}})
    here = AtTime(script.now_ms)
    script.wait(1_000).emptied(script.removed(script.of("a"), Cause.MEMBER_LEFT)).wait(1_000).deleted()
    script.wait(1_000).made_anew().created()
    again = msgspec.structs.replace(script.member("a"), principal="User:other")
    script.start(script.joined(again)).complete().stabilize({"a": {"orders": [0]}})
    history = script.history()
    found = diff(history, here, AtTime(script.now_ms))
    assert found is not None
    assert not found.same_life
    (changed,) = found.changed
    fields = {field.name: (field.before, field.after) for field in changed.fields}
    assert fields["principal"] == ("User:billing", "User:other")
    fold = DiffFold(history.group_id, history.log, AtGeneration(1), AtGeneration(9))
    for item in history.items:
        fold.feed(item)
    missing = fold.result()
    assert isinstance(missing, StateFold)
    assert (missing.at, missing.lives, missing.generations) == (AtGeneration(9), " of its last life", (1, 1))


def test_gaps_before_either_time_are_noted_once() -> None:
    """No matter what was in the gap, both sides are shown without it."""
    script = a_night()
    reads = [read for read in script.reads if not (isinstance(read, Happened) and read.event.seq == 3)]
    found = diff(script.history(reads=reads), AtSeq(12), AtSeq(20))
    assert found is not None
    (note,) = found.notes
    assert note.startswith("event 3 is not in the log")


def test_a_member_that_is_to_go_differs() -> None:
    """And in nothing else."""
    h = Harness()
    stable(h.static("a"), h.static("b"))
    before = AtSeq(h.events[-1].seq)
    h.alter(("members.retired", ConfigOperation.SET, "b"))
    found = diff(history_of(h), before, AtSeq(h.events[-1].seq))
    assert found is not None
    (changed,) = found.changed
    assert [(each.name, each.before, each.after) for each in changed.fields] == [("retiring", "no", "yes")]
