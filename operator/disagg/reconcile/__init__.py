"""The edge: events, queue, reconciler. Here alone are clocks, I/O and kopf."""
