"""Fixtures that all tests share."""

pytest_plugins = ["e2e.cluster.fixtures", "e2e.real_node"]
