"""Two live processes with one instance id."""

from collections import defaultdict
from collections.abc import Iterator

from muster.replay.incidents.episode.acts import AnyAct, CameBack, Duelled
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.windows import SAME_DUEL_MS
from muster.replay.rebalances.wording import host

KIND = Kind(
    "duel",
    "Two live processes have the same group.instance.id, and take it from each other.",
    "the member with the instance id",
)


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    by_instance: defaultdict[str, list[Duelled]] = defaultdict(list)
    for act in view.free(Duelled):
        if act.is_duel and act.why.group_instance_id is not None:
            by_instance[act.why.group_instance_id].append(act)
    for instance, duels in by_instance.items():
        taken = [
            act
            for act in view.free(CameBack)
            if act.member.group_instance_id == instance
            and duels[0].at_ms - SAME_DUEL_MS <= act.at_ms <= duels[-1].at_ms + SAME_DUEL_MS
        ]
        acts: list[AnyAct] = sorted([*duels, *taken], key=lambda act: act.seq)
        one, other = duels[-1].why.client_host, duels[-1].event.current_client_host
        times = sum(duel.times for duel in duels)
        yield IncidentClaim(
            kind=KIND,
            at_ms=acts[0].at_ms,
            acts=tuple(acts),
            culprits=tuple({act.member.member_id: act.member for act in taken}.values())[-1:],
            grade=Grade.RECORDED,
            headline=(
                f"two live processes took the instance id '{instance}' from each other, at {host(one or '')} and at"
                f" {host(other or '')}; {times} of their requests were fenced"
            ),
            advice=("give each process a group.instance.id of its own",),
        )
