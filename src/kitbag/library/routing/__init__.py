"""Finds the skills and agents that fit a message."""
