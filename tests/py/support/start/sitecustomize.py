"""Python runs this as a child process of the tests starts: torch makes millions of objects and no garbage while it is imported.

Searching them took half of the time of a child that compiles a step; a process that ends need not be searched either.
"""

import atexit
import gc

gc.set_threshold(100_000)
atexit.register(gc.freeze)
