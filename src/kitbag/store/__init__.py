"""Durable storage: the only package that writes state, and the redaction of everything it writes."""
