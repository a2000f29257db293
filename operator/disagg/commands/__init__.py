"""Commands of `disagg` that are more than a few lines."""
