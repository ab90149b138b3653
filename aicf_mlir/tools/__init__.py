"""Command-line tools. None of them imports torch unless it runs a model."""
