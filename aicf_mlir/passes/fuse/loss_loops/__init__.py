"""Losses as reductions and maps, a file for each: the loops that `losses.py` writes in the place of prebuilt launches."""
