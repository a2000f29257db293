"""End-to-end tests, demos and benchmarks, and the local cluster on which they run."""
