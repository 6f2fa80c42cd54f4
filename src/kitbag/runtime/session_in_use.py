"""The refusal to open a session that another process has open. Used by session_locks and session_leases."""

from kitbag.errors import InvalidError


class SessionInUseError(InvalidError):
    """Another process has the session open."""


def in_use_error(session_id: str, holder: str) -> SessionInUseError:
    fix = f"close it there, or resume a copy: kitbag --resume {session_id} --fork"
    return SessionInUseError(f"session {session_id} is open in another window ({holder})", fix)
