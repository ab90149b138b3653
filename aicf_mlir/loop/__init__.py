"""What helps with the loop around a step."""
