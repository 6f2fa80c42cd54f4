"""Undo: snapshots of files before each change, the plan that reverts what a message caused, and its execution."""
