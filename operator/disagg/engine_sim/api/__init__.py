"""OpenAI's HTTP, as engines speak it: what is equal between dialects.

`protocol` reads and checks requests, `prompts` makes tokens of them, `answers` collects whole answers, `streams` writes
events, `tools` knows answers that must be something, `generate` ties these together, `serving` holds what they share.
"""
