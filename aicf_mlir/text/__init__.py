"""From text that anybody may have written to verified modules: limits first, then the parser, then the rules."""
