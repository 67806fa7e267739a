"""Members that fell silent, in words: when they were last heard from, and whether they were heard from again."""

from collections.abc import Iterator, Sequence

from muster.replay.incidents.acts import Went
from muster.replay.incidents.episode import Episode
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.naming import moment, process_name
from muster.replay.times import duration, instant


def last_seen(episode: Episode, act: Went) -> Statement:
    """The last sign of life of a member that is gone: recorded, or between two moments."""
    silence = episode.silence_of(act)
    name = process_name(act.member)
    if silence.is_known:
        text = f"{name} was last heard from, and removed {duration(act.at_ms - act.last_seen_ms)} later"
        return Statement(text=text, grade=Grade.RECORDED, at=instant(silence.to_ms), seqs=(act.seq,))
    text = (
        f"when {name} was last heard from is not known: between {moment(silence.from_ms)} and {moment(silence.to_ms)},"
        " when the coordinator changed"
    )
    return Statement(text=text, grade=Grade.UNKNOWN, at=instant(silence.from_ms), seqs=(act.seq,))


def heard_again(episode: Episode, gone: Sequence[Went]) -> Iterator[Statement]:
    """Those that asked again under the member ids that they had lost: they had not died (from format level 4 on)."""
    for act in gone:
        found = episode.heard_again.get(act.member.member_id)
        if found is None:
            continue
        heard_ms, seq = found
        yield Statement(
            text=(
                f"{process_name(act.member)} had not died: it was heard from again under its old member id,"
                f" {duration(max(0, heard_ms - act.last_seen_ms))} after its last sign of life"
            ),
            grade=Grade.RECORDED,
            at=instant(heard_ms),
            seqs=(act.seq, seq),
        )
