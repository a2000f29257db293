"""Engines: how each one is started as prefill or decode. One module an engine, one interface (`engine.EnginePod`)."""
