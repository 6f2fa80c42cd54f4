"""Vectors of messages and skills, by a small language model in numpy (extra `semantic`)."""
