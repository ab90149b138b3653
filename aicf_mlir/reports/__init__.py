"""What people and tools read of a plan: descriptions of launches, the code of kernels, pictures."""
