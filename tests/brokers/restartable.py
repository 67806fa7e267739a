"""A separate broker that can be killed and restarted, with the same data and at the same address.

It starts, kills and restarts the broker, and reads its log.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from tests.brokers.broker import Broker
from tests.brokers.process import PreparedBroker, prepared_broker


class RestartableBroker:
    """See the module. It is running, except within `restart`."""

    def __init__(self, prepared: PreparedBroker) -> None:
        self._prepared = prepared
        self._serving: AbstractContextManager[Broker] | None = None

    @property
    def bootstrap(self) -> str:
        """`host:port`, unchanged by restarts."""
        return self._prepared.bootstrap

    @property
    def said(self) -> str:
        """Its log so far."""
        return self._prepared.log.read_text(encoding="utf-8", errors="replace")

    def start(self) -> None:
        """Start a process, and wait until it responds. Raises `BrokerFailed`."""
        assert self._serving is None
        serving = self._prepared.serving()
        serving.__enter__()
        self._serving = serving

    def kill(self) -> None:
        """Kill it with SIGKILL, and wait until it has ended."""
        if self._serving is not None:
            self._serving.__exit__(None, None, None)
            self._serving = None

    def restart(self) -> None:
        """Kill it, and start it again."""
        self.kill()
        self.start()


@contextmanager
def restartable_broker(settings: Mapping[str, str]) -> Iterator[RestartableBroker]:
    """A broker with `settings` over the test settings, while the block lasts. Raises `BrokerFailed`."""
    with prepared_broker(settings) as prepared:
        broker = RestartableBroker(prepared)
        broker.start()
        try:
            yield broker
        finally:
            broker.kill()
