"""The cluster as people see it: domains, nodes and accelerators, and where a resource would go. Pure, and read-only."""
