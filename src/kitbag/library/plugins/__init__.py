"""Plugins: install from a directory or an archive, lock, enable, disable, remove, and read what is installed."""
