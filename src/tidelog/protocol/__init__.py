"""Bytes and messages: Kafka's wire protocol, without any I/O."""
