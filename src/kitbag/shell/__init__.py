"""What a shell command line would run: parsed, taken apart and classified."""
