"""Language models behind one protocol: provider adapters, the model catalog, `offline` and `scripted`."""
