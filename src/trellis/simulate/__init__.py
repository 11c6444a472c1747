"""Run protocols, and whole nodes with their clients, in virtual time. The same seed gives the same run.

`engine.py` runs protocol objects (`trellis simulate omen`). `whole/` runs real nodes on simulated hosts, and `mesh/`
checks with it what clients are promised (`trellis simulate mesh`).

The package itself can be called: `trellis.simulate("omen", interests)` is `api.simulate` (`callable_package.py`).
"""

from trellis.callable_package import make_callable

make_callable(__name__)
