"""Undo: snapshots of files before each change, the plan that reverts a turn, and its execution."""
