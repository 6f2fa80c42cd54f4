"""Builds one agent from environment, model, permissions, skills, tools and prompt and switches them in a session."""
