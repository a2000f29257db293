from __future__ import annotations

from hypothesis import settings

# No deadline: a busy machine is not a bug.
settings.register_profile("unit", deadline=None, max_examples=80)
settings.load_profile("unit")
