"""The offline model: routes, loads skills, searches and quotes without a language model."""
