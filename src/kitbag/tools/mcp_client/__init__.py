"""Tools of other programs: servers that speak the Model Context Protocol, as tools of a run."""
