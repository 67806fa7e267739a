"""Which engine a build runs on, and why: small things stay small."""

import importlib.util
from typing import Final

import msgspec

from muster.replay.fleet.asked import EngineName
from muster.replay.fleet.java import NoJava, java_version

LOCAL_BYTES_MAX: Final = 300 * 1024 * 1024
"""Up to here this process is done before Spark's workers have begun, or soon after."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The engine, and the reason in words."""

    engine: EngineName
    reason: str


class NoSpark(Exception):
    """Spark was asked for and cannot run; the message says what is missing and how to get it."""


def choose(asked: EngineName, event_bytes: int) -> Choice:
    """Choose for so many bytes of events. Raises NoSpark."""
    if asked is EngineName.LOCAL:
        return Choice(engine=asked, reason="asked for")
    if asked is EngineName.SPARK:
        check_spark()
        return Choice(engine=asked, reason="asked for")
    size = f"{event_bytes / 1024 / 1024:.0f} MB of events"
    if event_bytes <= LOCAL_BYTES_MAX:
        return Choice(engine=EngineName.LOCAL, reason=f"{size} are too few for Spark to be worth its start")
    try:
        check_spark()
    except NoSpark as missing:
        return Choice(engine=EngineName.LOCAL, reason=f"{size} would be Spark's, but {missing}")
    return Choice(engine=EngineName.SPARK, reason=f"{size} are worth Spark's start")


def check_spark() -> None:
    """Raise NoSpark unless Spark can run here."""
    if importlib.util.find_spec("pyspark") is None:
        raise NoSpark("pyspark is missing: pip install '.[fleet]' in Muster's checkout")
    try:
        java_version()
    except NoJava as error:
        raise NoSpark(str(error)) from error
