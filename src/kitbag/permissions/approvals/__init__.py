"""Approvals: requests, answers, how a request is rendered, and the queue for background tasks."""
