"""Groups, classic and consumer groups, and the offsets that they commit."""
