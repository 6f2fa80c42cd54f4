"""Reads text that people write: files, frontmatter, Markdown, hidden characters. Knows no skills or agents."""
