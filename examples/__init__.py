"""Runnable examples: `python -m examples.tour`, from the root of the repository."""
