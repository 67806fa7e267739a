"""`python -m tests.brokers`: a broker to use by hand, for the demo, the benchmarks and exploration.

It prints one line on standard output, the bootstrap address, as soon as the broker responds; the chosen method goes to
standard error. The broker runs until Ctrl-C or SIGTERM, and is gone afterwards. Exit code 2 if none is available.
"""

import signal
import sys
from typing import Annotated

import typer

from tests.brokers.broker import NoBroker
from tests.brokers.choice import How, running_broker


def main(
    how: Annotated[How, typer.Option(help="The way to a broker; auto takes the first that works.")] = "auto",
    setting: Annotated[
        list[str] | None, typer.Option(help="A broker setting, as key=value; may be repeated.", metavar="KEY=VALUE")
    ] = None,
) -> None:
    """Run a real Kafka broker until Ctrl-C or SIGTERM, and print its bootstrap address."""
    settings = dict(_parsed(each) for each in setting or [])
    ends = {signal.SIGINT, signal.SIGTERM}
    for number in ends:
        signal.signal(number, _leave)
    try:
        with running_broker(settings=settings, how=how) as broker:
            print(broker.how, file=sys.stderr)
            print(broker.bootstrap, flush=True)
            signal.pause()
    except NoBroker as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from None


def _leave(_number: int, _frame: object) -> None:
    # An exception, so that the broker is ended at whatever point its start is.
    raise SystemExit(0)


def _parsed(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE")
    return key, value


if __name__ == "__main__":
    typer.run(main)
