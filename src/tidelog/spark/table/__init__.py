"""Delta and Parquet tables: what tasks write, and how the driver commits it."""
