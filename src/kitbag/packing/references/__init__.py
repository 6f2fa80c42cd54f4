"""References in a text (`@path`, `{{NAME}}`, `` !`command` ``): planned, permitted, resolved in one pass."""
