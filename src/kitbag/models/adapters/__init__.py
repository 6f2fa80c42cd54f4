"""Adapters for the wire protocols of model providers."""
