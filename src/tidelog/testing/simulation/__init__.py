"""Several brokers in one process, on one event loop with virtual time, and all that can fail."""
