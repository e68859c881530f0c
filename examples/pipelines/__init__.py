"""Pipelines that prove themselves: `python -m examples.pipelines website_activity --kill`.

Each directory holds a pipeline's file, a seeded generator of events (late, sent twice, malformed)
and the truth in plain Python. The same file runs as a stream, to catch up and as a batch, and what
its targets hold is compared with the truth.
"""
