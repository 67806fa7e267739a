"""Principals of clients whose name is not known."""

from typing import Final

ANONYMOUS: Final = "User:ANONYMOUS"
"""Kafka's principal of a client that has not authenticated."""
UNKNOWN_PRINCIPAL: Final = ""
"""The principal of a client that authenticated with a mechanism that does not reveal its name."""
