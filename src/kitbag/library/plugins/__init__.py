"""Plugins: install from a directory or an archive, enable, disable, remove, verify, and load what is installed."""
