"""Text of any author to verified modules: limits first, then the parser, then the rules."""
