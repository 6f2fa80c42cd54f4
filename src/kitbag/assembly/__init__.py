"""Puts one agent together: environment, model, permissions, skills, tools, prompt; and switches them in a session."""
