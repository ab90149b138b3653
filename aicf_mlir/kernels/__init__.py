"""Generated kernels before they are code: bodies, domains, operands and ids, the same for every target."""
