"""KV on its way between engines: what a connector is, and the NIXL one of vLLM.

`connector` says what an engine asks of any connector. `handshake` holds vLLM's rules of who may talk to whom, `side_channel`
the socket they are asked over, `data` the port over which block bytes go, `nixl` puts them together.
"""
