"""Workspace trust: what a workspace could run or allow, and whether the user trusts exactly that."""
