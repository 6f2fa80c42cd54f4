"""The sandbox: runs a command confined by bubblewrap or Landlock, or not at all."""
