"""A pipeline on Spark: built, analysed, tested and run."""
