"""The directory of a run's log: a directory that is marked to be kept is not emptied by a run of the other kind."""

from pathlib import Path

import pytest
import typer

from demo import __main__ as demo


def test_a_run_with_a_broker_leaves_the_log_of_one_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "DIRECTORY", tmp_path / "demo")
    monkeypatch.setattr(demo, "KAFKA_DIRECTORY", tmp_path / "demo-kafka")
    monkeypatch.setattr("signal.signal", lambda *_: None)
    kept = tmp_path / "demo" / "muster.db"
    kept.parent.mkdir()
    kept.touch()

    def fails(*_: object) -> str:
        raise demo.CannotBegin("there is no broker")

    monkeypatch.setattr(demo, "_broker_log", fails)
    with pytest.raises(typer.Exit):
        demo.main(kafka=True)
    assert kept.exists()
