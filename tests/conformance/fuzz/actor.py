"""A member of a schedule: the responses it got, and its requests.

It has ids, generations and what a client remembers, and turns a step into a request.

Both servers return the same, except for ids: so the same steps become the same requests on both.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from tests.conformance.eras import Era, version_in
from tests.conformance.fuzz.schedule import NAMES, Cast, Choice, Generation, Identified, JoinGroup, SyncGroup
from tests.conformance.member import NO_GENERATION, NOBODY, Protocols, subscription
from tests.conformance.wire import Fields, ms

LONG_MS: Final = 600_000
"""Longer than any schedule: such a timeout never expires."""

BRIEF_MS: Final = 500
REBALANCE_MS: Final = 2_500
"""The rebalance timeout of impatient members: longer than a brief session, so that it is clear which expires first."""

NAMED_BY_NOBODY: Final = "nobody"
PROTOCOLS: Final = ("range", "roundrobin", "sticky")

_STARTS_ANEW: Final = (25, 81, 82)
_JOINS_AGAIN: Final = (22, 27)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request. `asked`: its form in the transcript."""

    who: str
    api: str
    version: int
    body: Mapping[str, Any]
    asked: Mapping[str, Any]
    brief: bool
    """A success starts a session that soon expires."""
    life: int
    """The number of the sending process."""

    @property
    def restarts(self) -> str | None:
        """The instance id that this join restarts, if any."""
        is_one = self.api == "JoinGroup" and self.version >= 5 and self.body["member_id"] == ""
        instance: str | None = self.body["group_instance_id"] if is_one else None
        return instance


class Actor:
    """See the module. Each process has a `life`: a restart ends it."""

    def __init__(self, number: int, cast: Cast) -> None:
        self.name = NAMES[number]
        self.instance = self.name if cast.static else None
        self.era: Era = cast.era
        self.topics, self.offers = cast.topics, cast.offers
        self.member_id = self.old_id = ""
        self.life = self.ids_had = 0
        self.forget()

    def forget(self) -> None:
        """Forget everything about the group."""
        self.old_id = self.member_id or self.old_id
        self.member_id = ""
        self.generation_id = NO_GENERATION
        self.leader_id = ""
        self.protocol_name: str | None = None
        self.members: list[Fields] = []
        self.must_join, self.has_synced = True, False

    @property
    def has_just_an_id(self) -> bool:
        """True if it has an id and has to join with it."""
        return self.member_id != "" and self.generation_id == NO_GENERATION

    def restart(self, era: Era) -> None:
        """Another process takes its place."""
        self.era = era
        self.life += 1
        self.forget()

    # ---- responses -------------------------------------------------------------------------------------

    def told(self, request: Request, answer: Fields) -> None:
        """Remember a response to its own request."""
        code = answer.get("error_code", 0)
        if request.life != self.life:
            return
        if request.api == "JoinGroup" and code in (0, 79):
            self._joined(answer)
        elif request.body.get("member_id") != self.member_id:
            return
        elif code in _STARTS_ANEW:
            self.forget()
        elif code in _JOINS_AGAIN:
            self.must_join = True
        elif request.api == "SyncGroup" and code == 0:
            self.has_synced = True

    def _joined(self, answer: Fields) -> None:
        if self.member_id not in ("", answer["member_id"]):
            self.old_id = self.member_id
        self.member_id = answer["member_id"]
        if answer["error_code"]:
            self.generation_id, self.must_join = NO_GENERATION, True
        else:
            self.generation_id, self.leader_id = answer["generation_id"], answer["leader"]
            self.protocol_name, self.members = answer["protocol_name"], answer["members"]
            self.must_join, self.has_synced = False, False

    # ---- identity --------------------------------------------------------------------------------------

    def id_as(self, choice: Choice) -> str:
        """Its member id, or another one."""
        return {"own": self.member_id, "none": "", "old": self.old_id, "nobody": NOBODY, "empty": ""}[choice]

    def instance_as(self, choice: Choice) -> str | None:
        """Its instance id, or another one."""
        others = {"own": self.instance, "old": self.instance, "none": None, "nobody": NAMED_BY_NOBODY, "empty": ""}
        return others[choice]

    def generation_as(self, choice: Generation) -> int:
        """Its generation, or another one."""
        own = self.generation_id
        return {"own": own, "next": own + 1, "past": max(own - 1, 0), "none": NO_GENERATION}[choice]

    # ---- requests --------------------------------------------------------------------------------------

    def identity(self, step: Identified, posed: "Actor", group_id: str) -> dict[str, Any]:
        """The identity fields, as `posed` would send them."""
        return {
            "group_id": group_id,
            "member_id": posed.id_as(step.member_id),
            "group_instance_id": posed.instance_as(step.instance_id),
        }

    def request(
        self, api: str, body: Mapping[str, Any], *hidden: str, version: int | None = None, brief: bool = False
    ) -> Request:
        """A request of its own; the transcript shows `body` without the group and the `hidden` fields."""
        requested = {name: value for name, value in body.items() if name not in {"group_id", *hidden}}
        version = version_in(self.era, api) if version is None else version
        return Request(who=self.name, api=api, version=version, body=body, asked=requested, brief=brief, life=self.life)

    def join(
        self, step: JoinGroup, posed: "Actor", group_id: str, *, protocol_type: str, liked: Sequence[str], patient: bool
    ) -> Request:
        """JoinGroup. v0 has one timeout for both, which is then a long one."""
        if step.topics is not None:
            self.topics = step.topics
        if step.offers is not None:
            self.offers = step.offers
        version = version_in(self.era, "JoinGroup") if step.version is None else step.version
        brief = step.brief and version > 0
        session_ms = step.session_ms or (BRIEF_MS if brief else LONG_MS)
        rebalance_ms = LONG_MS if patient else REBALANCE_MS
        protocols = self._protocols(liked)
        body = {
            **self.identity(step, posed, group_id),
            "session_timeout": ms(session_ms),
            "rebalance_timeout": ms(rebalance_ms),
            "protocol_type": protocol_type if step.protocol_type is None else step.protocol_type,
            "protocols": [{"name": name, "metadata": metadata} for name, metadata in protocols],
            "reason": "",
        }
        hidden = ("session_timeout", "rebalance_timeout", "protocols", "reason")
        return self.request("JoinGroup", body, *hidden, version=version, brief=brief)

    def _protocols(self, liked: Sequence[str]) -> Protocols:
        return tuple((name, subscription(*self.topics)) for name in liked[: self.offers])

    def sync(self, step: SyncGroup, posed: "Actor", group_id: str, *, protocol_type: str) -> Request:
        """SyncGroup: a leader assigns, under the claimed identity."""
        wrong = {"wrong type": "wrong", "null": None}
        body = {
            **self.identity(step, posed, group_id),
            "generation_id": posed.generation_as(step.generation),
            "protocol_type": wrong.get(step.protocol, protocol_type),
            "protocol_name": {"wrong name": "wrong", "null": None}.get(step.protocol, posed.protocol_name or "range"),
            "assignments": posed.assignments(step),
        }
        return self.request("SyncGroup", body, "assignments", version=step.version)

    def assignments(self, step: SyncGroup) -> list[Fields]:
        """The assignment that it would send."""
        ids = [each["member_id"] for each in self.members]
        if step.assigns == "none":
            return []
        if step.assigns == "some":
            # Relative to its own position: the order of the leader's member list is not defined.
            ids = [each for each in ids if each != self.member_id]
        entries = [{"member_id": each, "assignment": f"{self.generation_id} of {self.name}".encode()} for each in ids]
        if step.assigns == "strangers":
            entries.append({"member_id": NOBODY, "assignment": b"strange"})
        return entries
