"""Process information, signals, and running child processes. Used by every layer that starts processes."""
