"""A trained policy as a file for use elsewhere."""
