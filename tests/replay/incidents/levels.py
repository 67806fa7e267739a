"""Histories as logs of other format levels have them."""

import msgspec

from muster.events.avro.codec import decode, encode
from muster.replay.history.items import Coordinated, Happened, Item
from tests.replay.whole import History


def at_level(history: History, level: int) -> History:
    """Return the history as a log of this level has it."""
    return msgspec.structs.replace(history, items=tuple(_at_level(item, level) for item in history.items))


def _at_level(item: Item, level: int) -> Item:
    if isinstance(item, Happened | Coordinated):
        return msgspec.structs.replace(item, event=decode(encode(item.event, level)))
    return item
