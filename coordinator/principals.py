"""What Kafka calls those of whom no name is known."""

from typing import Final

ANONYMOUS: Final = "User:ANONYMOUS"
"""Kafka's principal of who has not authenticated."""
UNKNOWN_PRINCIPAL: Final = ""
"""The principal of who has authenticated, in a way that does not tell his name."""
