"""The brokers that are measured and tested against, each started as a real process."""
