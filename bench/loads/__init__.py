"""The load programs, each run in a process of its own: ``python -m bench.loads NAME ARGUMENTS``.

A load takes a JSON object and prints one. It reads the broker's processor time itself, right
before and right after the part it times.
"""
