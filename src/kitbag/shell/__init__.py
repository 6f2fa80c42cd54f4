"""Shell analysis: which commands a shell text would run, and what each of them does."""
