"""For all tests: how hypothesis draws."""

from hypothesis import settings

# No deadline: the first example of a test may compile a kernel, and machines are shared. A failure prints the line
# that replays it.
settings.register_profile("trellis", deadline=None, print_blob=True)
settings.load_profile("trellis")
