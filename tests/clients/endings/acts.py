"""Acts, each of which is performed on a client, which is then observed.

It only acts; other modules interpret the observations.

The act starts when the client is a member that heartbeats and has committed. It is observed until its connections have
ended and it is no longer a member, or it is a member again, or `LIMIT_S` is over: each wait is for something
observable.
"""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from tests.clients.endings.given import LONG_MS, POLL_INTERVAL_MS, SESSION_MS, Act, ClientSettings, Trial
from tests.clients.endings.logged import LoggedEvent, read_log
from tests.clients.endings.places import Place
from tests.clients.endings.process import ClientProcess, client_process
from tests.clients.endings.programs import command_of
from tests.clients.endings.recorder import SeenConnection, now_ms
from tests.clients.probe import described
from tests.waiting import until_so

BEATS: Final = 3
STARTS_WITHIN_S: Final = 90.0
LIMIT_S: Final = 45.0
"""The time after which a member is no longer expected back."""

SILENT_S: Final = SESSION_MS / 1_000 + 4
"""The time for which it is stopped or cut off: longer than its session."""

CHECK_INTERVAL_S: Final = 0.02

STALLED_S: Final = (SESSION_MS + POLL_INTERVAL_MS) / 1_000 + 3
"""The time for which it does not poll: longer than its session, in case it only stops its heartbeats."""

UNSUBSCRIBED_S: Final = 3.0
AFTERWARDS_S: Final = 1.5
"""The time for observing the rest after an act, such as the end of other connections."""


_LINES: Final[Mapping[Act, str]] = {
    Act.CLOSE: "close",
    Act.CLOSE_LEAVING: "close LEAVE_GROUP",
    Act.CLOSE_REMAINING: "close REMAIN_IN_GROUP",
    Act.RAISE: "raise",
}
_SIGNALS: Final[Mapping[Act, signal.Signals]] = {
    Act.SIGTERM: signal.SIGTERM,
    Act.SIGTERM_HANDLED: signal.SIGTERM,
    Act.KILL: signal.SIGKILL,
}


class NotAMember(Exception):
    """A client did not become a member; the message has its output."""


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """The observations of a trial."""

    trial: Trial
    connections: list[SeenConnection]
    act_ms: float
    """The start of the act."""
    undone_ms: float | None
    """The time when it was undone: the process continued, network restored, process restarted, or poll resumed."""
    until_ms: float
    exited_ms: float | None
    events: list[LoggedEvent] = []
    """Muster's own events about the group's members."""
    wall_of_ms: float = 0
    """The wall clock minus the recorder's clock."""


def watch(trial: Trial, at: Place, folder: Path) -> Watched:
    """Run a trial. Raises `NotAMember`, `ToolMissing`, `BuildFailed`."""
    settings = ClientSettings(
        bootstrap=at.bootstrap,
        group_id=trial.name,
        client_id=trial.name,
        instance_id=trial.name if trial.is_static else "",
        handles_sigterm=trial.act in {Act.SIGTERM_HANDLED, Act.RESTART},
        session_ms=LONG_MS if trial.act is Act.RESTART else SESSION_MS,
        poll_interval_ms=POLL_INTERVAL_MS if trial.act is Act.LATE_POLL else LONG_MS,
    )
    command = [*at.prefix, *command_of(trial.family), *settings.arguments()]
    output = folder / f"{trial.name}.txt"
    with client_process(command, output) as process:
        _until_member(trial, at, process, since_ms=0)
        process.tell("commit")
        until_so(lambda: _has_committed(trial, at), process.said, within_s=STARTS_WITHIN_S)
        _until_member(trial, at, process, since_ms=now_ms())
        act_ms = now_ms()
        with _done(trial, at, process, command, output) as undone_ms:
            exited_ms = _watch_end(trial, at, process, act_ms, undone_ms)
            time.sleep(AFTERWARDS_S)
            seen = [_copied(each) for each in at.recorder.of(trial.name)]
            until_ms = now_ms()
    wall_of_ms = time.time() * 1_000 - now_ms()
    events = read_log(at.muster.log, trial.name, folder)
    return Watched(
        trial=trial,
        connections=seen,
        act_ms=act_ms,
        undone_ms=undone_ms,
        until_ms=until_ms,
        exited_ms=exited_ms,
        events=[each for each in events if each.decided_ms <= until_ms + wall_of_ms],
        wall_of_ms=wall_of_ms,
    )


@contextmanager
def _done(trial: Trial, at: Place, process: ClientProcess, command: list[str], output: Path) -> Iterator[float | None]:
    """Perform the act, and undo it if it has to be; return when it was undone."""
    act = trial.act
    if act in _LINES:
        process.tell(_LINES[act])
        yield None
    elif act in _SIGNALS:
        process.signal(_SIGNALS[act])
        yield None
    elif act is Act.PROXY_KILL:
        assert at.proxy is not None
        at.proxy.kill()
        yield None
    elif act is Act.RESTART:
        process.signal(signal.SIGTERM)
        until_so(lambda: not process.runs, process.said, within_s=LIMIT_S)
        undone_ms = now_ms()
        with client_process(command, output):
            yield undone_ms
    else:
        begin, duration_s, end = _pause(act, at, process)
        begin()
        time.sleep(duration_s)
        undone_ms = now_ms()
        end()
        yield undone_ms


def _pause(act: Act, at: Place, process: ClientProcess) -> tuple[Callable[[], None], float, Callable[[], None]]:
    """For an act that lasts: its start, its duration in seconds, and its end."""
    match act:
        case Act.UNSUBSCRIBE:
            return partial(process.tell, "unsubscribe"), UNSUBSCRIBED_S, partial(process.tell, "subscribe")
        case Act.LATE_POLL:
            return partial(process.tell, f"stall {STALLED_S}"), STALLED_S, lambda: None
        case Act.BLOCK:
            return partial(process.tell, f"block {SILENT_S}"), SILENT_S, lambda: None
        case Act.FREEZE:
            return partial(process.signal, signal.SIGSTOP), SILENT_S, partial(process.signal, signal.SIGCONT)
        case Act.CUT:
            assert at.link is not None
            return at.link.cut, SILENT_S, at.link.join
        case _:
            raise AssertionError(act)


def _watch_end(trial: Trial, at: Place, process: ClientProcess, act_ms: float, undone_ms: float | None) -> float | None:
    """Wait until nothing more will happen; return when the process ended, if it did."""
    deadline_ms = now_ms() + LIMIT_S * 1_000
    exited_ms = None
    is_gone = False
    while now_ms() < deadline_ms:
        if exited_ms is None and not process.runs:
            exited_ms = now_ms()
        if undone_ms is not None:
            if is_member(at.recorder.of(trial.name), undone_ms, beats=BEATS):
                break
        elif exited_ms is not None or not trial.act.ends_process:
            have_ended = all(each.ended or each.server_ended_ms for each in at.recorder.of(trial.name))
            is_gone = is_gone or not described(at.behind, trial.name)["members"]
            if have_ended and is_gone:
                break
        time.sleep(CHECK_INTERVAL_S)
    return exited_ms


def is_member(connections: list[SeenConnection], since_ms: float, *, beats: int) -> bool:
    """Return whether this many of its heartbeats were accepted since then."""
    accepted = [
        each
        for connection in connections
        for each in list(connection.requests)
        if each.api == "Heartbeat" and each.at_ms > since_ms and each.error == 0
    ]
    return len(accepted) >= beats


def _until_member(trial: Trial, at: Place, process: ClientProcess, *, since_ms: float) -> None:
    try:
        until_so(
            lambda: not process.runs or is_member(at.recorder.of(trial.name), since_ms, beats=BEATS),
            within_s=STARTS_WITHIN_S,
        )
    except TimeoutError:
        raise NotAMember(f"{trial.name}: {process.said()}") from None
    if not process.runs:
        raise NotAMember(f"{trial.name} ended: {process.said()}")


def _has_committed(trial: Trial, at: Place) -> bool:
    return any(
        each.api == "OffsetCommit" and each.answer
        for connection in at.recorder.of(trial.name)
        for each in list(connection.requests)
    )


def _copied(seen: SeenConnection) -> SeenConnection:
    return replace(seen, requests=list(seen.requests))
