"""Normalizes what other tools write in their files: field names, tool lists, model names, permission modes."""
