"""Renders blocks as terminal text: cleaned, colored and fitted to the width."""
