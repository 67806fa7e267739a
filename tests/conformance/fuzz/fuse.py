"""Time: which timers may expire, and how soon.

It tracks a group's possibly running timers from the requests and responses.

Every timeout is either so long that it never expires in a schedule, or short. Steps have to be over before the first
short one expires, and time passes only between steps, until all have expired: so no response depends on which came
first. The short ones differ enough for a certain order.
"""

import time
from collections.abc import Mapping
from typing import Final, Literal

from tests.conformance.fuzz.actor import BRIEF_MS, REBALANCE_MS, Request
from tests.conformance.fuzz.leadership import DEAD, View
from tests.conformance.fuzz.servers import INITIAL_DELAY_MS
from tests.conformance.wire import Fields

LATE_MS: Final = 400
"""How late a timer may be on a busy machine."""

Kind = Literal["brief", "initial", "rebalance"]

LASTS_MS: Final[Mapping[Kind, int]] = {
    "brief": BRIEF_MS,
    "initial": 2 * INITIAL_DELAY_MS,  # it may be extended once more, unseen
    "rebalance": REBALANCE_MS,
}
BURSTS_MS: Final[Mapping[Kind, int]] = {"brief": 400, "initial": 1_000, "rebalance": 1_400}
"""How long steps may take while such a timer is running."""

BESIDE_A_BRIEF_MS: Final[Mapping[Kind, int]] = {"brief": 400, "initial": 400, "rebalance": 800}
"""The same while a brief session is running, too: the order of their expiry must be certain."""

REQUESTS_MAX: Final[Mapping[Kind, int]] = {"brief": 12, "initial": 12, "rebalance": 30}
"""After this many requests time has to pass, rather than risking that it is too late."""

PREPARING, COMPLETING, STABLE = "PreparingRebalance", "CompletingRebalance", "Stable"


class Slipped(Exception):
    """The machine was too slow: a timer may have expired between two steps. The run proves nothing and is repeated."""


class Fuse:
    """The timers of one run."""

    def __init__(self, *, patient: bool) -> None:
        self._patient = patient
        self.is_initial = False
        """True while an initial rebalance waits for more members."""
        self._is_of_nobody = False
        self._was = View(state=DEAD, members={})
        self._instances: dict[str, str] = {}  # by the member ids that had them
        self._brief: set[str] = set()
        self._brief_pending = False
        self._synced: set[str] = set()
        self._lit: dict[Kind, tuple[float, int]] = {}  # since when (at the earliest), and requests since then
        self.is_blind = False
        """A timer restarts again and again, unseen: the next request has to be followed by a wait."""

    # ---- observations ----------------------------------------------------------------------------------

    def told(self, request: Request, answer: Fields) -> None:
        """A member got a response."""
        code = answer.get("error_code")
        if request.api == "SyncGroup" and code == 0:
            self._synced.add(request.body["member_id"])
        if request.api != "JoinGroup":
            return
        if code == 79:
            self._brief_pending |= request.brief
        elif code == 0:
            self._joined(request, answer["member_id"])

    def _joined(self, request: Request, member_id: str) -> None:
        self._synced.discard(member_id)
        # At a restart the session is first that of the previous process (ST8).
        inherited = any(self._instances.get(each) == request.restarts for each in self._brief) and request.restarts
        if request.brief or inherited:
            self._brief.add(member_id)

    def looked(self, view: View) -> None:
        """This is the group's current state."""
        if view.state != PREPARING:
            self.is_initial = self._is_of_nobody = False
        elif self._was.state in ("Empty", DEAD):
            self.is_initial = True
        elif self._was.state != PREPARING:
            self._is_of_nobody = not view.members
        self._was = view
        self._instances |= {member_id: each for member_id, each in view.members.items() if each is not None}

    def has_synced(self, member_id: str) -> bool:
        """Return whether it has synced since its last join."""
        return member_id in self._synced

    def running(self, view: View) -> set[Kind]:
        """The kinds of short timers that may be running."""
        kinds: set[Kind] = set()
        if self._brief_pending or self._brief & view.members.keys():
            kinds.add("brief")
        if view.state == PREPARING and self.is_initial:
            kinds.add("initial")
        elif not self._patient and (
            view.state in (PREPARING, COMPLETING)
            or (view.state == STABLE and not self._synced.issuperset(view.members))
        ):
            kinds.add("rebalance")
        return kinds

    def longest_ms(self, view: View) -> int:
        """If nothing happens for this long, nothing will; 0: no timer runs."""
        may_end = [LASTS_MS[kind] for kind in self.running(view)]
        if self.ends_at_once:
            may_end.append(1)
        return max(may_end) + LATE_MS if may_end else 0

    @property
    def ends_at_once(self) -> bool:
        """A rebalance that starts without members, but with a pending id, takes no time (RB5)."""
        return self._is_of_nobody

    # ---- duration of steps -----------------------------------------------------------------------------

    @property
    def is_lit(self) -> bool:
        """True if the next request has to follow soon."""
        return bool(self._lit)

    @property
    def must_pass(self) -> bool:
        """True if time has to pass before the next request."""
        return any(requests >= REQUESTS_MAX[kind] for kind, (_, requests) in self._lit.items())

    def asked(self, view: View, *, since_s: float) -> None:
        """A request was sent at that time, and received by now. Raises `Slipped`."""
        running = self.running(view)
        self._lit = {kind: self._lit.get(kind, (since_s, 0)) for kind in running}
        self._lit = {kind: (lit_s, requests + 1) for kind, (lit_s, requests) in self._lit.items()}
        self._check(running, since_s)

    def _check(self, running: set[Kind], since_s: float) -> None:
        """Raise `Slipped` if one of these, running at most since that time unless more is known, may have expired."""
        limits = BESIDE_A_BRIEF_MS if "brief" in running else BURSTS_MS
        for kind in running:
            lit_s, requests = self._lit.get(kind, (since_s, 0))
            took_ms = (time.monotonic() - lit_s) * 1_000
            if took_ms > limits[kind]:
                raise Slipped(f"{requests} requests beside a timer ({kind}) took {took_ms:.0f} ms")

    def passed(self, view: View, *, since_s: float | None = None) -> None:
        """All timers have expired, or the first one has and others started at that time. Raises `Slipped`."""
        if since_s is not None:
            self._lit = {}
            self._check(self.running(view) | ({"brief"} if self._brief else set()), since_s)
        self._lit = {} if since_s is None else dict.fromkeys(self.running(view), (since_s, 0))
        self._brief_pending = False
        self._brief &= view.members.keys()
        self.is_blind = not self._patient and view.state == PREPARING and since_s is None
