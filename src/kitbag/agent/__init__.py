"""The loop: one reply after another, tools in between, all of it in the journal."""
