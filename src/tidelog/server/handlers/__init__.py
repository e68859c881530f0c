"""One module per family of APIs: what a request means, in Kafka's terms."""
