"""PySpark on topics: the data source `tidelog`, tables, and pipelines declared in a file."""
