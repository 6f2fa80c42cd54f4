"""What a model sees: the catalog it starts with and the text a skill is delivered as."""
