"""Is there a Java runtime that Spark can use? Asked before Spark is, whose own answer is a page long."""

import os
import re
import shutil
import subprocess
from pathlib import Path

SUPPORTED = (17, 21)


class NoJava(Exception):
    """Spark cannot run here; the message says what is missing and how to get it."""


def java_version() -> int:
    """The major version of the Java that Spark will take. Raises NoJava."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    wanted = " or ".join(map(str, SUPPORTED))
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is no java on the PATH and no JAVA_HOME"
        raise NoJava(f"Spark needs Java {wanted}: {where}; install it (Debian: openjdk-17-jre-headless)")
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, check=False, timeout=60).stderr  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoJava(f"Spark needs Java {wanted}: {java} does not run ({error})") from error
    told = shown.decode(errors="replace")
    found = re.search(r'version "(\d+)', told)
    if found is None:
        raise NoJava(f"Spark needs Java {wanted}: {java} -version says {told.strip()[:200]!r}")
    major = int(found[1])
    if major not in SUPPORTED:
        raise NoJava(f"Spark needs Java {wanted}: {java} is version {major}; set JAVA_HOME to another one")
    return major
