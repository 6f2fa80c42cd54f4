"""Renders blocks, forms and the state of a chat as HTML: cleaned, escaped, without inline styles or scripts."""
