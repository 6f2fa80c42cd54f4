"""Audits what a skill can do, by reading its files without running any of them."""
