"""The Spark session: made here alone."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_session(master: str, packages: Sequence[str] = ()) -> "SparkSession":
    """A session that stays on this machine's loopback when it is local. The master of `spark-submit` wins.

    `packages`: Maven coordinates of what the workers need besides, unless `spark-submit` has brought jars of its own.
    """
    from pyspark import SparkConf  # noqa: PLC0415 -- it takes a second, and most builds need none
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("muster fleet").config("spark.ui.enabled", "false")
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started this process, and has the master
    if not is_submitted:
        builder = builder.master(master)
    builder = builder.config("spark.ui.showConsoleProgress", str(sys.stderr.isatty()).lower())
    given = SparkConf()
    if packages and not (given.contains("spark.jars.packages") or given.contains("spark.jars")):
        builder = builder.config("spark.jars.packages", ",".join(packages))
    if not is_submitted and master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
