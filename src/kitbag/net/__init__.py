"""The one guarded way to fetch anything from the network."""
