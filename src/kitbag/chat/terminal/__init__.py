"""The UI at a terminal, drawn with prompt_toolkit."""
