"""The hardware: processor, devices, CPU kernels that fit; the variables of the environment; files on its disk."""
