"""The deterministic simulator.

The package can be called: `trellis.simulate("omen", interests)` is `api.simulate` (see `trellis.doors`).
"""

from trellis.doors import make_callable

make_callable(__name__)
