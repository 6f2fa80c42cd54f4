"""What users see, as values (blocks), and how a terminal renders them. Used by the CLI and the chat."""
