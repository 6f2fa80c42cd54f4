"""From blocks to the text a terminal gets: cleaned, coloured and fitted to its width."""
