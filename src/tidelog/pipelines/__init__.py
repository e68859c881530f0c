"""Pipelines declared in a file: sources, steps and targets, run on Spark Structured Streaming."""
