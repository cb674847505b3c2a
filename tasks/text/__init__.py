"""Tagging of texts in column files."""
