"""The Bash tool."""
