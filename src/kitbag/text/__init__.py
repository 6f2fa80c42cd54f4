"""Text as people write it: reading files, heads, hidden characters, token counts. Knows no skills or agents."""
