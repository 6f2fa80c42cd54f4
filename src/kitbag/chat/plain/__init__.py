"""The UI that writes lines of text: for pipes, screen readers and dumb terminals."""
