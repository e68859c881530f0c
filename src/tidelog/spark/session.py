"""For programs of your own: `prepare_environment` sets Spark up as `tidelog pipeline run` does."""

from tidelog.spark.launch.session import prepare_environment

__all__ = ["prepare_environment"]
