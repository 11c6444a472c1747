"""`python -m trellis`: the same as `trellis`."""

from trellis.cli.main import main

main()
