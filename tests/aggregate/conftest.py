from __future__ import annotations

from hypothesis import settings

# The first call of a kernel compiles it, on a loaded machine for seconds.
settings.register_profile("kernels", deadline=None)
settings.load_profile("kernels")
