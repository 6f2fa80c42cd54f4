"""Adapters for the API protocols of model providers."""
