"""The one guarded way to fetch anything from the network: `fetch` waits asynchronously, `fetch_now` blocks.

Knows nothing of tools and rules; permissions ask it how hosts compare. Importing it imports no HTTP library.
"""
