"""What is computed from a module without running it: bytes and operations of launches, and the scalars of a step."""
