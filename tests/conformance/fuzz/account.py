"""The record of a run: the transcript, the names of ids, and the counts of responses."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tests.conformance.fuzz.actor import Actor, Request
from tests.conformance.transcript import Transcript
from tests.conformance.wire import Connection, Fields, Pending

UUID_LENGTH: Final = 36


class Exchange:
    """A pending request, sent in the step of that number."""

    def __init__(self, request: Request, connection: Connection, pending: Pending, number: int) -> None:
        self.request, self.connection, self.pending, self.number = request, connection, pending, number
        self.answer: Fields | None = None
        self.was_parked = False


class Account:
    """See the module. `words` replace generated values in the transcript."""

    def __init__(self, words: Mapping[str, str]) -> None:
        self.transcript = Transcript(words=words)
        self.tally: Counter[tuple[str, int]] = Counter()
        self.number = 0
        self.pending: set[str] = set()
        """Ids that were handed out and not yet used."""
        self._names: dict[str, str] = {}
        self._shown: Fields = {}

    def begin(self, number: int, text: str, *, state: str) -> None:
        """A step begins, with the group in this state."""
        self.number = number
        self.tally[f"step in {state}", 0] += 1
        self.transcript.note(f"{number}. {text}")

    def remark(self, text: str) -> None:
        """Record a remark."""
        self.transcript.note(f"    ({text})")

    def note(self, exchange: Exchange, answered: Fields | str) -> None:
        """Record a request and its result; a parked one is recorded a second time."""
        request = exchange.request
        late = {"of step": exchange.number} if exchange.was_parked else {}
        what = f"{request.api} v{request.version}"
        self.transcript.exchanged(f"  {request.who}", what, {**late, **request.asked}, answered)

    def note_free(self, joined: Sequence[Fields]) -> None:
        """Exactly one is the leader, whichever it is, and all got the same members."""
        leaders = [answer for answer in joined if answer["member_id"] == answer["leader"]]
        reported = [
            {"member_id": m["member_id"], "metadata": m["metadata"]} for each in leaders for m in each["members"]
        ]
        self.transcript.exchanged("  ", "the leader is free", {"leaders": len(leaders)}, {"members": reported})

    def note_view(self, described: Fields) -> None:
        """Record the group, if it has changed."""
        if described != self._shown:
            self._shown = described
            self.transcript.exchanged("  ", "the group", {}, described)

    # ---- names -----------------------------------------------------------------------------------------

    def name(self, actor: Actor, answer: Fields) -> None:
        """Name an id by the first one who got it, and the number of ids given before."""
        if answer["error_code"] not in (0, 79):
            return
        member_id = answer["member_id"]
        (self.pending.add if answer["error_code"] else self.pending.discard)(member_id)
        if member_id not in self._names:
            actor.ids_had += 1
            self._names[member_id] = f"{actor.name}{actor.ids_had}"
            self.transcript.learn(member_id, self._names[member_id])

    def is_named(self, member_id: str) -> bool:
        """Return whether this id was given to a member."""
        return member_id in self._names

    def in_order(self, member_ids: Iterable[str]) -> list[str]:
        """In an order that is the same for both servers."""
        return sorted(member_ids, key=lambda member_id: self._names.get(member_id, f"~{member_id[:-UUID_LENGTH]}"))

    # ---- counts ----------------------------------------------------------------------------------------

    def count(self, api: str, answer: Any) -> None:
        """Count error codes; the nested ones if the top-level one is 0."""
        if isinstance(answer, list):
            for each in answer:
                self.count(api, each)
        elif isinstance(answer, dict):
            within = [value for value in answer.values() if isinstance(value, list) and value]
            code = answer.get("error_code")
            if code or not within or api in _COUNTED_WHOLE:
                self.tally[api, code or 0] += 1
                return
            for value in within:
                self.count(api, value)


_COUNTED_WHOLE: Final = ("JoinGroup", "SyncGroup", "ListGroups")
