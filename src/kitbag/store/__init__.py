"""What is kept: the one place that writes anything durable, and redacts it."""
