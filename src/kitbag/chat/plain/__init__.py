"""The face that writes lines: for pipes, screen readers and terminals that can do little."""
