"""The messages, a module per API; `tidelog.protocol.apis` imports them on first use."""
