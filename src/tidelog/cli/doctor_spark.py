"""The doctor's look at what pipelines need: PySpark, a Java, and the right Python for its workers.

Without PySpark nobody means to run pipelines here, and nothing is said.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec

from tidelog.cli.finding import Finding, fault, well


def examine(environment: Mapping[str, str]) -> Iterator[Finding]:
    """What Spark would run with."""
    if find_spec("pyspark") is None:
        return
    yield check_java(environment)
    yield check_worker_python(environment)


def check_java(environment: Mapping[str, str]) -> Finding:
    """Is there a Java that runs and is new enough?"""
    from tidelog.spark.launch.java import JavaNotFoundError, find_java

    try:
        java = find_java(environment)
    except JavaNotFoundError as error:
        return fault(
            "java",
            f"PySpark is installed, but {error}",
            "set JAVA_HOME, or `pip install 'tidelog[java]'`",
        )
    return well("java", f"Java {java.version} is in {java.home} ({java.origin}).")


def check_worker_python(environment: Mapping[str, str]) -> Finding:
    """Do Spark's workers run on the Python that Tidelog is installed in?"""
    named = environment.get("PYSPARK_PYTHON")
    if named is None:
        return well(
            "worker python",
            f"PYSPARK_PYTHON is not set; `tidelog pipeline run` sets it to {sys.executable}.",
        )
    found = shutil.which(named, path=environment.get("PATH"))
    if found is None:
        return fault(
            "worker python",
            f"PYSPARK_PYTHON names {named}, which is not there.",
            f"unset it, or set it to {sys.executable}",
        )
    if os.path.realpath(found) != os.path.realpath(sys.executable):
        return fault(
            "worker python",
            f"PYSPARK_PYTHON names {found}, but Tidelog runs on {sys.executable}: Spark's workers"
            " may not find its modules.",
            "unset it, unless Spark runs on other machines",
        )
    return well("worker python", f"Spark's workers run on {found}.")
