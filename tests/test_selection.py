"""Which tests run, and in which order: the names are right, and a quick run starts no broker."""

import pytest

from tests.brokers import NoBroker, running_broker
from tests.brokers.jars import NO_BROKERS_VARIABLE, JarsMissing, resolved_libs
from tests.selection import LEFT_OUT, LONGEST, ROOT


def test_what_is_named_is_there() -> None:
    """A name that leads nowhere would leave out nothing, or put nothing first."""
    assert [path for path in (*LEFT_OUT, *LONGEST) if not (ROOT / path).exists()] == []


def test_a_test_that_starts_a_broker_fails_in_a_quick_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container too; so that it is marked, or named among what is left out."""
    monkeypatch.setenv(NO_BROKERS_VARIABLE, "1")
    with pytest.raises(JarsMissing, match="a quick run"):
        resolved_libs()
    with (
        pytest.raises(NoBroker, match=r"(?s)container: .* a quick run.*process: .* a quick run"),
        running_broker(),
    ):
        pass
