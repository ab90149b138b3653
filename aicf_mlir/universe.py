"""What AICF adds to xDSL; the entry point `xdsl.universe` makes plain `xdsl-opt` see it too."""

from xdsl.universe import Universe

from aicf_mlir.dialects import get_all_dialects
from aicf_mlir.passes import get_all_passes

AICF_UNIVERSE = Universe(all_dialects=get_all_dialects(), all_passes=get_all_passes())
