"""References in a text (`@path`, `{{NAME}}`, `` !`command` ``): plan, check permissions, resolve in one pass."""
