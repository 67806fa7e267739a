"""Fixtures and options of all tests: the broker, how long Hypothesis may look, and from which seed."""

import gc
import os
import secrets
import signal
import sys
from collections.abc import Generator
from importlib.util import find_spec

import pytest
from hypothesis import HealthCheck, settings


class BareNames:
    """Refuses `import events` and its like: under a bare name each class of `muster.events` would be there twice."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name in {"coordinator", "drills", "events", "replay", "schemas"}:
            message = f"{name} is muster.{name}"
            raise ImportError(message, name=name)


sys.meta_path.insert(0, BareNames)

pytest_plugins = ["tests.selection"]
if find_spec("jgo") is not None:  # the environment of `make quick` has nothing that starts a broker
    pytest_plugins.append("tests.brokers.fixtures")

settings.register_profile("quick", deadline=None, max_examples=10, suppress_health_check=list(HealthCheck))
settings.register_profile("ci", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", deadline=None, max_examples=2_000, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give each run a seed of its own, which is printed: so a red run can be played again.

    A shell has SIGINT ignored in what it runs in the background, and programs inherit that. Programs that tests start
    inherit no handler, so that they can be interrupted.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: None)
    if config.getoption("hypothesis_seed") is None:
        config.option.hypothesis_seed = str(secrets.randbelow(2**32))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the collector away from modules and tests, which live until the end: it would look through all each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_report_header(config: pytest.Config) -> str:
    """Name the seed (`pytest --hypothesis-seed=...` plays it again)."""
    return f"hypothesis seed: {config.getoption('hypothesis_seed')}"
