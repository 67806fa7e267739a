"""The errors of requests to brokers: retry, outcome unknown, refused.

    LinkError         one clear line
      TryAgain        nothing was sent, or it changed nothing, or (below) its outcome is unknown; a retry may succeed
        AnswerLost    it was sent, and its outcome is unknown
        OwnShortage   this machine or process has no resources left to open a connection (shortage.py)
      LinkRefused     waiting does not help: credentials, certificates, a broker that lacks the request

The users of a link derive their own errors from these, with the wording that their readers need.
"""

from typing import Final

from kio.schema.errors import ErrorCode

COORDINATOR_MOVED: Final = frozenset(
    {ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available, ErrorCode.not_coordinator}
)
"""A coordinator's errors that changed nothing: FindCoordinator is sent again, and the request retried."""


class LinkError(Exception):
    """A request to a broker failed; the text is one line for the operator."""


class TryAgain(LinkError):
    """A retry may succeed: the request was not sent, changed nothing, or (AnswerLost) its outcome is unknown."""


class AnswerLost(TryAgain):
    """The request was sent and its response was lost."""


class OwnShortage(TryAgain):
    """This machine or process cannot open another connection (shortage.py)."""


class LinkRefused(LinkError):
    """Waiting does not help: credentials, certificates, or an API that the broker lacks."""
