"""What a skill can do, read from its files without running any of them."""
