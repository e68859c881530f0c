"""Transactions: who writes under which id and epoch, and how each transaction ends."""
