"""Kitbag inside other programs' agents."""
