"""Finds, reads and resolves skills, agents, commands, personas and plugins. Runs nothing, connects to nothing."""
