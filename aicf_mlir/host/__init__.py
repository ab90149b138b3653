"""The Python process: its interpreter, the start of a tool, signals and the garbage collector."""
