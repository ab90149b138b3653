"""The plan dialect: every address and every launch, as text that can be edited by hand and run.

    plan.program @mlp target "sm_90" peak 2371584 {
      plan.arena @param 526336
      plan.slot @x in @input[0] : memref<64x256xf32> input "x"
      plan.slot @h in @temp[65536] : memref<64x256xf32> temp live 0..4
      plan.slot @h_rows in @temp[65536] : memref<16384xf32> temp alias @h
      plan.slot @c0 in @const[0] : memref<f32> const 1.0
      plan.launch @k0 "relu_f32_vec4" relu x(@x) -> y(@h) {...} workspace @k0.workspace predicate not @failed branch 1 after @k1
    }

Sizes and offsets are bytes. Before plan-memory slots have no address, and there is neither arena nor peak. rules.py checks that a
plan can run.
"""

from xdsl.ir import Dialect

from aicf_mlir.dialects.plan.launch import LaunchOp
from aicf_mlir.dialects.plan.memory import ArenaOp, SlotOp
from aicf_mlir.dialects.plan.program import ProgramOp, find_program

Plan = Dialect("plan", [ProgramOp, ArenaOp, SlotOp, LaunchOp], [])

__all__ = ["ArenaOp", "LaunchOp", "Plan", "ProgramOp", "SlotOp", "find_program"]
