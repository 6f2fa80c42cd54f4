"""Serves skills and agents to MCP clients over stdio and streamable HTTP: `kitbag mcp`.

Imported only by `cli/mcp` and integrations. The MCP SDK's server is imported only here, so that other commands start
faster.
"""
