"""The chat: what a person sees and types at a terminal, on the events of the runtime."""
