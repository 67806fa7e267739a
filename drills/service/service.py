"""The service that is drilled, as far as a drill needs to know it, whichever it is."""

from typing import Protocol

from muster.events.kafka.security import KafkaSecurity


class Service(Protocol):
    """See the module. `log_url`: its event log; `topic`: one that members may subscribe."""

    @property
    def bootstrap(self) -> str:
        """Where clients reach it, HOST:PORT with commas."""
        ...

    @property
    def topic(self) -> str: ...

    @property
    def log_url(self) -> str: ...

    @property
    def has_new_log(self) -> bool:
        """Whether the log has been made for the drill."""
        ...

    @property
    def client_security(self) -> KafkaSecurity: ...

    @property
    def log_security(self) -> KafkaSecurity: ...

    @property
    def description(self) -> str:
        """One line for people: which processes, on which log."""
        ...

    def process_of(self, owner: str) -> str:
        """The name of the process that events call so (`host:pid`)."""
        ...
