"""Permission rules: parse, load, match, suggest and save them."""
