"""The options of a step, one in each file; `table.py` lists them."""
