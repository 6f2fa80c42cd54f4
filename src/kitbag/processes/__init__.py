"""What the system says about processes, and the one way to send them signals. Used by every layer that starts some."""
