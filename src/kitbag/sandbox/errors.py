"""What goes wrong when a sandbox is created."""

from kitbag.errors import InvalidError


class SandboxError(InvalidError):
    """The sandbox could not be created; the command did not run."""
