"""Skills and agents for every MCP client, over stdio and streamable HTTP: `kitbag mcp`.

Above runtime and beside the other interfaces; only `cli/mcp` imports it. The SDK is imported here and nowhere else, so
that no other command pays for it.
"""
