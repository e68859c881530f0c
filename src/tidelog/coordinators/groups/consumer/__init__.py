"""Consumer groups: KIP-848, ConsumerGroupHeartbeat."""
