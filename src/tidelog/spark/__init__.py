"""PySpark on topics: the data source `tidelog`, tables, and pipelines declared in a file.

`decode` and `Values` (values of records as columns) are imported when they are first used: they
need PySpark, and reading a pipeline's file does not.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.spark.value_columns import Values, decode

__all__ = ["Values", "decode"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tidelog.spark' has no attribute '{name}'")
    from tidelog.spark import value_columns

    return getattr(value_columns, name)
