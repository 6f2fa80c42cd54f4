"""Decides whether a tool call is allowed, denied or needs an approval."""
