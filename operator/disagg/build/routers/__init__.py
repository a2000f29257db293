"""Routers: how each is started. One module a router, all with `router_pod`."""
