"""Settings of all tests."""

from hypothesis import settings

# A first call compiles kernels, and machines are noisy: time is not what these properties are about.
settings.register_profile("hitl", deadline=None)
settings.load_profile("hitl")
