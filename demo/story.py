"""The story, step by step: the actions, their expected effects, and the checks.

A claim is checked twice: from what the client libraries reported to their applications, and from the event log. "No
rebalance" means that no other member was notified of anything, that every member has since committed offsets with the
member id and generation it had (which the coordinator checks), and that the log has the same generation and no further
rebalance.
"""

import asyncio
import shlex
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from demo.coordinator import Coordinator, Replay
from demo.members import GROUP, PARTITIONS, Mark, Member, Members
from demo.reports import Assigned, Ended
from demo.scene import NotAsTold, Scene
from demo.stage import Stage

STATIC: Final = ("billing-0", "billing-1", "billing-2")
FENCED: Final = "FENCED_INSTANCE_ID"

Shares = Mapping[str, tuple[int, ...]]


class Story:
    """Everything that the steps share. `step` is the heading of the current one, for error messages."""

    def __init__(self, stage: Stage, scene: Scene, coordinator: Coordinator, members: Members, replay: Replay) -> None:
        self.stage = stage
        self.scene = scene
        self.coordinator = coordinator
        self.members = members
        self.replay = replay
        self.step = ""
        self._generation_id = 0
        self._rebalances = 0
        self._shares: Shares = {}

    async def tell(self) -> None:
        """From the coordinator's start to the last line. Raises NotAsTold."""
        await self.coordinator.start()
        self.stage.title(
            f"Muster coordinates a consumer group of {len(STATIC) + 1} members on {PARTITIONS} partitions.",
            shlex.join(("muster", *self.coordinator.command)),
        )
        steps = (
            ("Four consumers form a group.", "Three are static members, one is dynamic.", self._form),
            ("Rolling restart of the static members.", "One by one, as in a deployment.", self._roll),
            ("kill -9 of the dynamic member.", "It is missed when its session of 6 s is over.", self._expire),
            ("A new dynamic member.", "It gets its share.", self._grow),
            ("Two processes with one instance id.", "A second billing-1 is started by mistake.", self._fence),
            ("kill -9 of the coordinator.", "It is started again, on the same event log.", self._crash),
            ("Why did the group rebalance?", "The event log knows.", self._ask_why),
        )
        for number, (heading, explanation, act) in enumerate(steps, start=1):
            self.step = f"{number}, '{heading}'"
            self.stage.step(number, heading, explanation)
            await act()

    # ---- the steps ---------------------------------------------------------------------------------

    async def _form(self) -> None:
        for name in STATIC:
            await self.members.start(name, static=True)
        await self.members.start("extra-1", static=False)
        await self.members.until_shared()
        await self._rebalanced(members=4)

    async def _roll(self) -> None:
        before = Mark(self.members)
        restarts = []
        for old in self.members.static:
            others = Mark(member for member in self.members if member is not old)
            began_s = time.monotonic()
            await self.members.stop(old)
            new = await self.members.start(old.name, static=True)
            await self._same_partitions(new, before)
            self._undisturbed(others)
            restarts.append(_since(began_s))
        await self._no_rebalance(
            Mark(self.members),
            f"each has its own partitions back, after {', '.join(restarts)}",
            "no other member was told anything",
        )

    async def _expire(self) -> None:
        (extra,) = (member for member in self.members if not member.static)
        before = Mark(self.members)
        await self.members.kill(extra)
        await self.members.until_shared(since=before)
        await self._rebalanced(members=3)

    async def _grow(self) -> None:
        before = Mark(self.members)
        await self.members.start("extra-2", static=False)
        await self.members.until_shared(since=before)
        await self._rebalanced(members=4)

    async def _fence(self) -> None:
        older = self.members.static[1]
        before = Mark(self.members)
        others = Mark(member for member in self.members if member is not older)
        newer = await self.members.start(older.name, static=True)
        await self._same_partitions(newer, before)
        await self.members.gone(older)
        if not older.seen(Ended) or FENCED not in older.refusals:
            raise NotAsTold(f"the older {older.name} should end with {FENCED}", str(older))
        await self._no_rebalance(
            others,
            f"the newer process has {' '.join(map(str, newer.partitions or ()))} now",
            f"the older one got {FENCED} and ended",
        )

    async def _crash(self) -> None:
        before = Mark(self.members)
        began_s = time.monotonic()
        await self.coordinator.kill()
        await self.coordinator.start()
        outage = _since(began_s)
        await self._no_rebalance(
            before,
            f"after {outage} without a coordinator everybody has what it had",
            "the clients retried what broke off, and saw no other error",
        )
        if not before.retried():
            raise NotAsTold("the members should have noticed that their coordinator was gone", self.scene.describe())

    async def _ask_why(self) -> None:
        arguments = ("why", GROUP, "--all")
        told, typed = await asyncio.gather(self.replay.result(*arguments), self._typed(*arguments))
        incidents = told["incidents"]
        rebalances = _rebalances_as_told(incidents)
        _avoided_as_told(incidents)
        on_tape = await self._typed("why", GROUP, "--generation", "2") if self.stage.records else None
        self.stage.command(*typed, on_tape=on_tape)
        self.stage.sum_up(
            f"{len(rebalances)} rebalances, each with its reason; none for {len(STATIC)} restarts, a process started "
            "twice, and a crash.",
            f"Dynamic members would have left and joined at each restart: up to {2 * len(STATIC)} rebalances avoided.",
        )

    async def _typed(self, *arguments: str) -> tuple[str, str]:
        line = shlex.join(("muster", *self.replay.command(*arguments)))
        return line, await self.replay.text(*arguments, width=self.stage.width)

    # ---- the checks --------------------------------------------------------------------------------

    async def _rebalanced(self, *, members: int) -> None:
        """There was one rebalance, and it is over: the log and the members agree on it. Prints the result."""
        self._generation_id += 1
        self._rebalances += 1
        line, _ = await asyncio.gather(self._line(), self.members.until_proven(Mark(self.members)))
        self._agrees(line, members)
        shares = self._shares_now()
        moved = {name: set(has) - set(self._shares.get(name, ())) for name, has in shares.items()}
        self.stage.rebalance(self._generation_id, shares, moved if self._shares else {})
        self._shares = shares

    async def _no_rebalance(self, mark: Mark, first: str, second: str) -> None:
        """No member was notified of anything since the mark, and every member still has its place."""
        now = Mark(self.members)
        line, _ = await asyncio.gather(self._line(), self.members.until_proven(now))
        self._undisturbed(mark)
        self._undisturbed(now)
        if self._shares_now() != self._shares:
            raise NotAsTold(f"everybody should have what it had, {dict(self._shares)}", str(self._shares_now()))
        self._agrees(line, len(self._shares))
        self.stage.no_rebalance(self._generation_id, first, second)

    def _shares_now(self) -> Shares:
        return {member.name: member.partitions or () for member in sorted(self.members, key=lambda each: each.name)}

    def _agrees(self, line: Mapping[str, Any], members: int) -> None:
        expected = {
            "state": "Stable",
            "generation_id": self._generation_id,
            "rebalances": self._rebalances,
            "members": members,
            "static_members": len(STATIC),
        }
        seen = {name: line.get(name) for name in expected}
        if seen != expected:
            raise NotAsTold(f"the event log should have the group as {expected}", f"{seen}\n{self.scene.describe()}")

    async def _line(self) -> Mapping[str, Any]:
        groups = (await self.replay.result("groups"))["groups"]
        lines = [line for line in groups if line["group_id"] == GROUP]
        if len(lines) != 1:
            raise NotAsTold(f"the event log should have the group {GROUP}", str(groups))
        line: Mapping[str, Any] = lines[0]
        return line

    async def _same_partitions(self, new: Member, before: Mark) -> None:
        await self.scene.until(
            f"the new {new.name} has its partitions",
            lambda: new.partitions is not None or new.process.exit_code is not None,
        )
        had = before.partitions[new.name]
        if new.partitions != had or len(new.seen(Assigned)) != 1:
            raise NotAsTold(f"{new.name} should get {had} back, at once", str(new))

    def _undisturbed(self, mark: Mark) -> None:
        disturbed = list(mark.disturbed())
        if disturbed:
            raise NotAsTold("nobody should be told anything", "\n  ".join(disturbed))


def _rebalances_as_told(incidents: Sequence[Any]) -> list[Any]:
    """The rebalances, oldest first: a first join, an expiry, a new member; each of one incident with its culprit.

    Raises NotAsTold.
    """
    rebalances = [rebalance for incident in incidents for rebalance in incident["rebalances"]]
    rebalances.sort(key=lambda rebalance: rebalance["first_seq"])
    triggers = [rebalance["trigger"]["cause"] for rebalance in rebalances]
    if triggers[1:] != ["session-expired", "new-dynamic-member"] or not triggers[0].startswith("new-"):
        raise NotAsTold("the log should tell of a first join, an expiry and a new member", str(triggers))
    expected = {"start": [[*STATIC, "extra-1"]], "crash": [["extra-1"]], "scale-up": [["extra-2"]]}
    seen = {kind: [_clients(each) for each in incidents if each["kind"] == kind] for kind in expected}
    if seen != expected:
        raise NotAsTold(f"the log should tell of these incidents, by these members: {expected}", str(seen))
    return rebalances


def _avoided_as_told(incidents: Sequence[Any]) -> None:
    """The restarts, the second process and the takeover are reported, and caused no rebalance. Raises NotAsTold."""
    quiet = [each for each in incidents if not each["rebalances"]]
    restarted = [_clients(each) for each in quiet if each["kind"] == "deployment"]
    if restarted != [list(STATIC)]:
        raise NotAsTold("the log should tell of one deployment of the static members, without a rebalance", str(quiet))
    absorbed = sum(each["cost"]["restarts_absorbed"] for each in incidents)
    fenced = [said["text"] for each in quiet for said in each["chain"] if "fenced" in said["text"]]
    takeovers = [each["headline"] for each in quiet if "took over" in each["headline"]]
    if absorbed != len(STATIC) + 1 or not any("billing-1" in text for text in fenced) or len(takeovers) != 1:
        raise NotAsTold(
            f"the log should tell of {len(STATIC) + 1} static restarts, a fenced billing-1 and one takeover",
            f"{absorbed}, {fenced}, {takeovers}",
        )


def _clients(incident: Any) -> list[str]:  # noqa: ANN401 -- JSON
    """The culprits, by client id, without duplicates."""
    return sorted({member["client_id"] for member in incident["culprits"]})


def _since(began_s: float) -> str:
    return f"{time.monotonic() - began_s:.1f} s"
