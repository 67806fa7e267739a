"""Times and windows as text."""

from muster.replay.history.window import Bounds
from muster.replay.results.groups import Groups
from muster.replay.text.times import moment_of


def when_text(window: Bounds | None) -> str:
    """Return the window as text, with a leading blank; empty for the whole history."""
    if window is None:
        return ""
    since = "" if window.since is None else f" since {moment_of(window.since)}"
    return since + ("" if window.until is None else f" until {moment_of(window.until)}")


def no_group_text(groups: Groups) -> str:
    """Report that no group has an event, in the window if there is one; and the time span of the log, if it has
    events.
    """
    told = f"No group has an event in {groups.log}{when_text(groups.window)}"
    if groups.first_at is None or groups.last_at is None:
        return f"{told}."
    return f"{told}; it covers {moment_of(groups.first_at)} to {moment_of(groups.last_at)}."
