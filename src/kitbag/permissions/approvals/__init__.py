"""Approvals: what is asked, how a question is shown, and the queue of background questions."""
