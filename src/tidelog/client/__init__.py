"""The Kafka client that Tidelog's own parts use; private: users bring their own Kafka client.

Sans-I/O with two shells. The core (`connection`, `metadata`, `operation`, `producer`,
`transactional`, `fetcher`, `admin`) holds every decision and opens no socket; `blocking` drives it
with plain sockets for the command line and Spark, `aio` with an event loop for followers and the
console. It works against Tidelog and Apache Kafka alike. Left out: fetch sessions.
"""
