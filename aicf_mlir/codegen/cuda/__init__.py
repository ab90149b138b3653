"""CUDA C++ from a generated kernel: `generate` prints it, `workspace` gives the bytes that its phases pass on.

    pieces.py    device functions of our own that the text brings along: NVRTC has no CUDA headers
    scalars.py   the CUDA C++ of each operation of a body
    dependency.py   the wait that kernels begin with, and the kernels without one
    text.py      lines of text, and the values that have a name at a place of it
    access.py    axes and offsets, accesses of up to 16 bytes
    maps.py      rows.py, split_rows.py, columns.py: a schedule each, which follows from shapes alone, and its text
    products.py  a matrix product around an epilogue, from the device code of the prebuilt kernels
    back_to_back.py   products one after the other in one launch, from registers to registers; back_to_back_schedule.py
                 divides it, back_to_back_products.py, back_to_back_bodies.py, back_to_back_sums.py print its pieces
    rows_and_columns.py   a rowwise and a colwise kernel over one domain in one walk

No sum is contracted with a product, so that a value that two kernels compute has the same bits in both. Division and square
roots are IEEE's, but what is divided by one number of a row, or by a sum of 1 and no negative number as in a logistic function,
is multiplied with the reciprocal, within 1.5 units in the last place; subnormals are kept. No order of additions depends on the
device.
"""

from aicf_mlir.codegen.cuda.generate import generate, workspace

__all__ = ["generate", "workspace"]
