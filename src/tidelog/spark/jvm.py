"""The one module that reaches behind PySpark, into Spark's JVM.

PySpark has no public way to a query's plan, Hadoop's file systems, a thread's active session or the
end of the JVM. When Spark moves one of its private handles, this is the file to mend.
Objects of the JVM are `Any`: nothing here knows their classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXIT_TIMEOUT_S: Final = 30


def activate(session: SparkSession) -> None:
    """Make a session that of this thread: by it Spark finds the sinks that Python has."""
    _spark_sql(session).classic.SparkSession.setActiveSession(session._jsparkSession)


def analysed_plan(frame: DataFrame) -> Any:
    """The logical plan of a frame, with every name resolved."""
    return frame._jdf.queryExecution().analyzed()


def optimized_plan(frame: DataFrame) -> Any:
    """What the optimizer leaves of a frame's plan."""
    return _state(frame.sparkSession).optimizer().execute(analysed_plan(frame))


def parsed_plan(session: SparkSession, sql: str) -> Any:
    """The logical plan of a statement as it is written; PySparkException where it is none."""
    return _state(session).sqlParser().parsePlan(sql)


def elements(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


def pretty_sql(session: SparkSession) -> Any:
    """Spark's own function from an expression to its text."""
    return _spark_sql(session).catalyst.util.package.toPrettySQL


def logical_class(session: SparkSession, name: str) -> Any:
    """A class of logical plans; its `isInstance` tells whether a node of a plan is one."""
    jvm: Any = session._jvm
    return jvm.java.lang.Class.forName(f"org.apache.spark.sql.catalyst.plans.logical.{name}")


def check_streaming(frame: DataFrame, mode: str) -> None:
    """AnalysisException where Spark cannot run a frame as a stream in this output mode."""
    spark_sql = _spark_sql(frame.sparkSession)
    modes = spark_sql.streaming.OutputMode
    output_mode = modes.Update() if mode == "update" else modes.Append()
    checker = spark_sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(analysed_plan(frame), output_mode)


def hadoop_file(session: SparkSession, path: str) -> tuple[Any, Any]:
    """The file system of Hadoop that a path lies on, and the path as it takes it."""
    jvm: Any = session._jvm
    context: Any = session._jsc
    place = jvm.org.apache.hadoop.fs.Path(path)
    return place.getFileSystem(context.hadoopConfiguration()), place


def close_session(session: SparkSession) -> None:
    """Stop the session and its JVM, which would else outlive it until this process ends."""
    from pyspark import SparkContext

    gateway = session.sparkContext._gateway
    session.stop()
    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        # It goes in any case, later, now that it has no input.
        with suppress(TimeoutExpired):
            process.wait(EXIT_TIMEOUT_S)
    SparkContext._gateway = SparkContext._jvm = None


def _spark_sql(session: SparkSession) -> Any:
    jvm: Any = session._jvm
    return jvm.org.apache.spark.sql


def _state(session: SparkSession) -> Any:
    java_session: Any = session._jsparkSession
    return java_session.sessionState()
