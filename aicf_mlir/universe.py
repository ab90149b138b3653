"""What AICF adds to xDSL. The entry point `xdsl.universe` makes `xdsl-opt` and xDSL's other tools see it too.

xDSL refuses an installation where two universes have a dialect or a pass of the same name, so ours holds what is
AICF's own: canonicalize, cse and dce are there from xDSL, and passes from outside the tree have universes of
their own.
"""

from xdsl.universe import Universe

from aicf_mlir.dialects import get_all_dialects
from aicf_mlir.passes import get_all_passes

AICF_UNIVERSE = Universe(all_dialects=get_all_dialects(), all_passes=get_all_passes())
