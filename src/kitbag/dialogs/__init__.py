"""Questions to the user, the same in every UI: what is asked and what an answer means. Used by the CLI and the chat."""
