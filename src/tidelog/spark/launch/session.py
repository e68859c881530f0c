"""A Spark session as pipelines use it: Java found, the right Python, settings for short batches.

The Python of the workers is the one that runs here (`PYSPARK_PYTHON`), else Spark would take
whatever `python3` is on PATH. What can be imported here can be imported by Spark's Python
processes, also where Tidelog is not installed but on the path.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.errors import TidelogError
from tidelog.spark.launch.home import use_quick_home
from tidelog.spark.launch.java import Java, find_java
from tidelog.spark.locations import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

# What the runner sets unless the pipeline's file says otherwise.
DEFAULTS: Final[Mapping[str, str]] = {
    "spark.master": "local[*]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # A query that is stopped in mid-batch must not hang on its last task.
    "spark.sql.streaming.stopTimeout": "30s",
}
# Only for checkpoints on local disks: it renames, and object stores cannot.
LOCAL_CHECKPOINT: Final = {"spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS}


class SparkMissingError(TidelogError):
    """PySpark is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "PySpark is not installed, and pipelines run on it: pip install 'tidelog[spark]'"
        )


def session_settings(
    settings: Mapping[str, str], checkpoint: str = "", temporary: Path | None = None
) -> dict[str, str]:
    """The defaults under the settings of a pipeline, for where its checkpoint lies.

    `temporary` is where the driver's JVM keeps what goes with it.
    """
    local = LOCAL_CHECKPOINT if is_local(checkpoint) else {}
    java = [f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"]
    if temporary is not None:
        java.append(f"-Djava.io.tmpdir={temporary}")
    # Behind ours, and so above them, what the user gives.
    options = [*(f'"{each}"' for each in java), settings.get(_JAVA_OPTIONS, "")]
    return {**DEFAULTS, **local, **settings, _JAVA_OPTIONS: " ".join(options).strip()}


def prepare_environment(master: str = "") -> Java:
    """Set what the processes that Spark starts inherit; the Java that they run on."""
    if find_spec("pyspark") is None:
        raise SparkMissingError
    java = find_java(os.environ)
    os.environ["JAVA_HOME"] = str(java.home)
    # To YARN Spark sends the zip itself.
    if not master.startswith("yarn"):
        use_quick_home(os.environ)
    # Who named one means it: on a cluster the Python of the workers lies elsewhere.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Data sources that Spark finds by name run with this one, also on the workers.
    os.environ["PYSPARK_DRIVER_PYTHON"] = os.environ["PYSPARK_PYTHON"]
    here = str(Path(__file__).parents[3])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if here not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, paths)])
    return java


def open_session(name: str, settings: Mapping[str, str]) -> SparkSession:
    """The session of this process with these settings; started where there is none."""
    prepare_environment(settings.get("spark.master", ""))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
