"""Finding Java for Spark: JAVA_HOME before the PATH, and two versions of it."""

from pathlib import Path

import pytest

from muster.replay.fleet.choice import NoJava, java_version


def installed(folder: Path, version: str) -> None:
    """Install a `java` that reports this version."""
    folder.mkdir(parents=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2021-09-14' >&2\n")
    java.chmod(0o755)


def test_java_home_is_used_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Spark does."""
    installed(tmp_path / "home" / "bin", "21.0.2")
    installed(tmp_path / "path", "17.0.1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/bin:/usr/bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java_version() == 21
    monkeypatch.delenv("JAVA_HOME")
    assert java_version() == 17


def test_a_java_that_does_not_run_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So `auto` folds in this process, and `spark` reports it in one line."""
    installed(tmp_path / "bin", "17.0.1")
    (tmp_path / "bin" / "java").chmod(0o644)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoJava, match=f"Spark needs Java 17 or 21: {tmp_path}/bin/java does not run"):
        java_version()


@pytest.mark.parametrize(("version", "said"), [("11.0.9", "is version 11; set JAVA_HOME"), ("?", "-version says")])
def test_another_version_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, said: str) -> None:
    """With its path."""
    installed(tmp_path / "bin", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoJava, match=f"Spark needs Java 17 or 21: {tmp_path}/bin/java {said}"):
        java_version()
