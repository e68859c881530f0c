"""Groups of consumers, of both protocols, and the offsets that they commit."""
