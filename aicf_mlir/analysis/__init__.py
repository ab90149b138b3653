"""Properties of a module that are computed without running it: bytes and operations of launches, and the scalars of a step."""
