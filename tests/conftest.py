"""Settings of all tests: random instances are the same in every run."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("repeatable")
