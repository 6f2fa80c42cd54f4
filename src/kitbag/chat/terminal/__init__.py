"""The face at a terminal, drawn with prompt_toolkit."""
