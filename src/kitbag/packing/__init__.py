"""What a model sees: prompts, catalogs, delivered skills and packed tasks."""
