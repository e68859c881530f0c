"""Partitions as replicas: who leads, what is committed, who waits for what."""
