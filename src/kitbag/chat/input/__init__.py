"""What a person types: completions, history, pastes."""
