"""Coordinators: what must be decided in one place for all of the cluster's clients."""
