"""Integrations with other agent SDKs."""
