"""What comes of asking a broker, by what may follow from it.

    LinkError         one clear line
      TryAgain        nothing was sent, or it changed nothing, or (below) nobody knows; the same again may succeed
        AnswerLost    it was sent, and its outcome is not known
      LinkRefused     waiting mends nothing: credentials, certificates, a broker that lacks the request

The users of a link have kinds of their own below these, with the words that their readers need.
"""

from typing import Final

from kio.schema.errors import ErrorCode

COORDINATOR_MOVED: Final = frozenset(
    {ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available, ErrorCode.not_coordinator}
)
"""Answers of a coordinator that changed nothing: it is looked for again, and asked the same."""


class LinkError(Exception):
    """See the module."""


class TryAgain(LinkError):
    """See the module."""


class AnswerLost(TryAgain):
    """See the module."""


class LinkRefused(LinkError):
    """See the module."""
