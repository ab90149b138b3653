"""Reports on a plan for people and tools: descriptions of launches, the code of kernels, pictures."""
