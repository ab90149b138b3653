"""What launches move and compute, whatever runs them: bytes by their operands, operations by their formulas."""
