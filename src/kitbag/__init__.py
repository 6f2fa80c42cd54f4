"""Kitbag gives AI agents the right skills at the right moment, and proves it."""
