"""Delegated work as records: what was asked for, who does it, how it ended."""
