"""The offline model: routes, loads, searches and quotes without a language model."""
