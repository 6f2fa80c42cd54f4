"""What an agent can do: each tool is a module, its description a text file beside it."""
