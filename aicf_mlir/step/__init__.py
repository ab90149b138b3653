"""The compiled step: its request, build, runs and examination, and its options."""
