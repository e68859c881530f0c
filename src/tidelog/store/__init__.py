"""Durable metadata: a small versioned store behind one asynchronous port."""
