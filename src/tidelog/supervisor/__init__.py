"""Several brokers on one machine: their directories, their processes, the store they share."""
