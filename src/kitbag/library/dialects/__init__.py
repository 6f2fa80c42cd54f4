"""The dialects of other tools: their field names, tool lists, model names and permission modes in one form."""
