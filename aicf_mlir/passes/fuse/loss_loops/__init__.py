"""Losses as reductions and maps, a file for each: what `losses.py` writes in the place of prebuilt launches."""
