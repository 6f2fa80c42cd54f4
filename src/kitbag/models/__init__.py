"""Language models behind one protocol: adapters for wire protocols, the catalog, `offline` and `scripted`."""
