"""User input: completion, history, pastes."""
