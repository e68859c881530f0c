"""What `make demo` runs: a broker, a live click stream, three applications, a Spark pipeline."""
