"""Tools that find files and search in them: Glob, Grep."""
