"""Generation of machine code from bodies: LLVM IR text for the CPU, CUDA C++ for GPUs, compiled once and kept on disk."""
