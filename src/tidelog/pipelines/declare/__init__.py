"""A pipeline's file, read and checked. Nothing in here imports PySpark."""
