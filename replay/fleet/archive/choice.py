"""Which engine archives, and why: this process, or Spark."""

from importlib.util import find_spec
from typing import Final, Literal

import msgspec

from muster.replay.fleet.java import NoJava, java_version

Engine = Literal["auto", "local", "spark"]

SPARK_FROM_RECORDS: Final = 5_000_000
"""From so many records on Spark's start is worth its time, where it is there: some minutes for one process."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The engine, and the reason in words."""

    engine: Literal["local", "spark"]
    reason: str


class CannotRun(Exception):
    """The engine that was asked for cannot run here; the message says what is missing."""


def choose(asked: Engine, *, is_topic: bool, records: int) -> Choice:
    """Choose. `records`: what is to be archived. Raises CannotRun."""
    if asked == "spark":
        if not is_topic:
            raise CannotRun("--engine spark archives a Kafka topic; of this log say --engine local")
        missing = _missing()
        if missing is not None:
            raise CannotRun(missing)
        return Choice(engine="spark", reason="as asked for")
    if asked == "local" or not is_topic:
        return Choice(engine="local", reason="as asked for" if asked == "local" else "the log is a file")
    if records < SPARK_FROM_RECORDS:
        return Choice(engine="local", reason=f"there are {records} records, fewer than {SPARK_FROM_RECORDS}")
    missing = _missing()
    if missing is not None:
        return Choice(engine="local", reason=f"{records} records would be Spark's, but {missing}")
    return Choice(engine="spark", reason=f"there are {records} records, {SPARK_FROM_RECORDS} or more")


def _missing() -> str | None:
    if find_spec("pyspark") is None:
        return "pyspark is missing: pip install '.[fleet]' in Muster's checkout"
    try:
        java_version()
    except NoJava as error:
        return str(error)
    return None
