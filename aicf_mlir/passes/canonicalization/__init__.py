"""Rewrite patterns of the stock pass `canonicalize`, one file per dialect."""
