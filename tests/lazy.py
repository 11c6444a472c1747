"""Packages that take long to import and that few tests need: each is imported at its first use.

Every xdist worker collects every test file, so what stands at the top of one file is paid by each worker before its
first test.
"""

import importlib
from typing import Any


class Lazy:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest asks everything that it meets for `__test__`, `_mock_name`, ...
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


nx: Any = Lazy("networkx")
stats: Any = Lazy("scipy.stats")
functions: Any = Lazy("pyspark.sql.functions")
testing: Any = Lazy("pyspark.testing")
