"""A home of Spark in which Python processes import PySpark compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tidelog.spark.launch import home
from tidelog.spark.launch.home import quick_home, use_quick_home

PACKAGE = Path(pyspark.__file__).parent.resolve()


def test_python_imports_the_installed_package_and_not_the_zip(tmp_path: Path) -> None:
    made = quick_home(PACKAGE, tmp_path)
    ask = "import pyspark; print(pyspark.__file__, pyspark.__cached__)"
    done = subprocess.run(
        [sys.executable, "-c", ask],
        env={**os.environ, "PYTHONPATH": str(made / "python" / "lib" / "pyspark.zip")},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    file, cached = done.stdout.split()
    assert Path(file).is_relative_to(made) and Path(cached).is_file()


def test_everything_else_is_where_spark_looks_for_it(tmp_path: Path) -> None:
    made = quick_home(PACKAGE, tmp_path)
    assert (made / "jars").samefile(PACKAGE / "jars")
    assert (made / "bin" / "spark-submit").is_file()
    assert [path.name for path in (made / "python" / "lib").glob("py4j*.zip")]
    assert quick_home(PACKAGE, tmp_path) == made
    assert [path.name for path in tmp_path.iterdir()] == [made.name], "nothing half made is left"


def test_one_that_another_process_makes_at_the_same_time_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = home._link

    def late(package: Path, made: Path) -> None:
        monkeypatch.setattr(home, "_link", link)
        quick_home(package, tmp_path)
        link(package, made)

    monkeypatch.setattr(home, "_link", late)
    made = quick_home(PACKAGE, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [made.name]


def test_a_home_of_the_user_is_left_alone_and_one_of_ours_is_not(tmp_path: Path) -> None:
    environment = {"SPARK_HOME": "/opt/spark"}
    use_quick_home(environment, tmp_path)
    assert environment == {"SPARK_HOME": "/opt/spark"}
    inherited = {"SPARK_HOME": str(tmp_path / "spark-home-of-another-version")}
    use_quick_home(inherited, tmp_path)
    assert inherited == {"SPARK_HOME": str(quick_home(PACKAGE, tmp_path))}


def test_where_nothing_can_be_written_spark_keeps_its_own_home(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environment: dict[str, str] = {}
    use_quick_home(environment, tmp_path / "file" / "cache")
    assert environment == {}


def test_a_home_that_cannot_be_put_in_its_place_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: object, target: object) -> None:
        raise PermissionError(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    environment: dict[str, str] = {}
    use_quick_home(environment, tmp_path)
    assert environment == {}
    assert list(tmp_path.iterdir()) == []


def test_settings_that_the_user_makes_later_are_found(tmp_path: Path) -> None:
    package = tmp_path / "pyspark"
    for name in ("jars", "python/lib"):
        (package / name).mkdir(parents=True)
    made = quick_home(package, tmp_path / "cache")
    (package / "conf").mkdir()
    (package / "conf" / "spark-defaults.conf").write_text("spark.ui.enabled false")
    assert (made / "conf" / "spark-defaults.conf").is_file()
    assert quick_home(package, tmp_path / "cache") == made


def test_a_program_that_runs_from_such_a_home_makes_no_other(tmp_path: Path) -> None:
    made = quick_home(PACKAGE, tmp_path)
    ask = """
import os, sys
from pathlib import Path
from tidelog.spark.launch.home import use_quick_home
use_quick_home(os.environ, Path(sys.argv[1]))
print(os.environ["SPARK_HOME"])
"""
    found = os.pathsep.join([str(made / "python" / "lib" / "pyspark.zip"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", ask, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": found, "SPARK_HOME": str(made)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == str(made)


def test_where_there_is_no_cache_at_all_spark_keeps_its_own_home(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none() -> Path:
        raise FileExistsError("a file is in the way")

    monkeypatch.setattr(home, "cache_directory", none)
    environment: dict[str, str] = {}
    use_quick_home(environment)
    assert environment == {}
