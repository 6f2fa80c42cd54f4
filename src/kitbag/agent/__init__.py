"""The agent loop: model replies, tool calls between them, and every step recorded in the journal."""
