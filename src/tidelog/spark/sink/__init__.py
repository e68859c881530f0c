"""Writing topics: Spark's interface and its options."""
