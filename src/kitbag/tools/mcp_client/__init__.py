"""The MCP client: tools and prompts of Model Context Protocol servers, as tools of a run."""
