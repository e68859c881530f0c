"""Pipelines declared in a file: sources, steps and targets, run on Spark Structured Streaming.

Reading and checking a file (`file`, `check`) needs no Spark; building and running it does.
"""
