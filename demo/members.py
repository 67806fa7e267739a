"""The consumers of the story, and their reports.

Starts and ends member processes, and checks their reports. Only what a client library reported counts; queries to the
coordinator are elsewhere.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Final

from demo.children import Child, log_tail, start_child
from demo.coordinator import Coordinator
from demo.reports import Assigned, CommitFailed, Committed, Ended, Report, Retried, Revoked, decode_report
from demo.scene import NotAsTold, Scene

GROUP: Final = "billing"
TOPIC: Final = "orders"
PARTITIONS: Final = 12

PROOF_COMMITS: Final = 2
"""A commit whose response arrived may have been sent before the event in question; the one after it was not."""


class Member:
    """One process. `reports` has everything its client library reported, in order."""

    def __init__(self, name: str, *, static: bool) -> None:
        self.name = name
        self.static = static
        self.reports: list[Report] = []
        self.child: Child | None = None

    @property
    def process(self) -> Child:
        assert self.child is not None
        return self.child

    @property
    def partitions(self) -> tuple[int, ...] | None:
        """Its last assignment; None if it was revoked, or there was none."""
        for report in reversed(self.reports):
            if isinstance(report, Assigned):
                return report.partitions
            if isinstance(report, Revoked):
                return None
        return None

    @property
    def refusals(self) -> set[str]:
        """The errors with which it was refused."""
        return {report.error for report in self.reports if isinstance(report, CommitFailed | Ended)}

    def seen(self, *kinds: type[Report], since: int = 0) -> list[Report]:
        """The reports of these kinds; `since` counts all reports."""
        return [report for report in self.reports[since:] if isinstance(report, kinds)]

    def __str__(self) -> str:
        counts = Counter(type(report).__name__ for report in self.reports)
        parts = [f"{self.name} has {list(self.partitions) if self.partitions is not None else 'nothing'}"]
        parts.append(", ".join(f"{count} {name}" for name, count in counts.items()) or "no word from it")
        if self.refusals:
            parts.append(f"refused with {', '.join(sorted(self.refusals))}")
        if self.child is not None and self.child.exit_code is not None:
            parts.append(f"ended with {self.child.exit_code}")
        return "; ".join(parts)


class Mark:
    """A point in time: the number of reports that each member had made by then."""

    def __init__(self, members: Iterable[Member]) -> None:
        self._counts = {member: len(member.reports) for member in members}
        self.partitions = {member.name: member.partitions for member in self._counts}

    def since(self, member: Member, *kinds: type[Report]) -> list[Report]:
        """The member's reports after the mark."""
        return member.seen(*kinds, since=self._counts.get(member, 0))

    def proven(self) -> bool:
        """True if each has had commits accepted that it sent after the mark."""
        return all(len(self.since(member, Committed)) >= PROOF_COMMITS for member in self._counts)

    def disturbed(self) -> Iterator[str]:
        """Descriptions of the members with a revocation, an assignment, a refusal or an end since."""
        for member in self._counts:
            told = self.since(member, Assigned, Revoked, CommitFailed, Ended)
            if told:
                yield f"{member.name} was told {', '.join(map(str, told))}"

    def retried(self) -> int:
        """The number of errors that the client libraries retried since."""
        return sum(len(self.since(member, Retried)) for member in self._counts)


class Members:
    """The group's processes, by name; those that ended during the story are removed."""

    def __init__(self, scene: Scene, coordinator: Coordinator, directory: Path) -> None:
        self._scene = scene
        self._coordinator = coordinator
        self._directory = directory
        self._all: list[Member] = []
        scene.describe = lambda: "\n  ".join(map(str, self._all)) or "no member"

    def __iter__(self) -> Iterator[Member]:
        return iter(self._all)

    @property
    def static(self) -> list[Member]:
        return [member for member in self._all if member.static]

    async def start(self, name: str, *, static: bool) -> Member:
        """Start a member, which joins by itself."""
        member = Member(name, static=static)
        program = "demo.static_member" if static else "demo.dynamic_member"
        with self._log(name).open("ab") as errors:
            member.child = await start_child(
                ["-m", program, self._coordinator.bootstrap, GROUP, TOPIC, name],
                take_line=lambda line: self._take_line(member, line),
                ended=self._scene.note,
                errors=errors,
            )
        self._scene.add(member.child)
        self._all.append(member)
        return member

    def _take_line(self, member: Member, line: bytes) -> None:
        member.reports.append(decode_report(line))
        self._scene.note()

    async def stop(self, member: Member) -> None:
        """Have it close cleanly."""
        member.process.signal(SIGTERM)
        await self.gone(member)
        if member.process.exit_code:
            raise NotAsTold(f"{member.name} should stop in good order", str(member))

    async def kill(self, member: Member) -> None:
        """Kill it with SIGKILL."""
        member.process.signal(SIGKILL)
        await self.gone(member)

    async def gone(self, member: Member) -> None:
        """Wait until it has ended; it is removed from the group's processes."""
        await self._scene.until(f"{member.name} has ended", lambda: member.process.exit_code is not None)
        self._all.remove(member)

    async def until_shared(self, *, since: Mark | None = None) -> None:
        """Wait until each has a new assignment, and together they have every partition exactly once."""

        def shared() -> bool:
            if since is not None and not all(since.since(member, Assigned) for member in self._all):
                return False
            owned = [partition for member in self._all for partition in member.partitions or ()]
            return all(member.partitions for member in self._all) and sorted(owned) == list(range(PARTITIONS))

        names = ", ".join(member.name for member in self._all)
        await self._scene.until(f"{names} share {PARTITIONS} partitions", lambda: shared() or bool(self._ended()))
        self._all_run()

    async def until_proven(self, mark: Mark) -> None:
        """Wait until each has had a commit accepted that it sent after the mark."""
        await self._scene.until(
            "every member has committed, under its member id and generation",
            lambda: mark.proven() or bool(self._ended()),
        )
        self._all_run()

    def _ended(self) -> list[Member]:
        return [member for member in self._all if member.process.exit_code is not None]

    def _all_run(self) -> None:
        for member in self._ended():
            raise NotAsTold(f"{member.name} should run on", f"{member}\n{log_tail(self._log(member.name))}")

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"
