"""The only way to fetch anything from the network: `fetch` is asynchronous, `fetch_sync` blocks.

Knows nothing about tools and rules; permissions use it to compare hosts. Importing it imports no HTTP library.
"""
