"""Tools that read and change files: Read, Write, Edit."""
