"""Reading topics: Spark's interface, a query's progress and offsets, tasks, options."""
