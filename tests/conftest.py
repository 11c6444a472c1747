"""For all tests: how hypothesis draws, which worker runs what, and that an interrupt reaches what the tests start."""

import logging
import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# No deadline: the first example of a test may compile a kernel, and machines are shared. A failure prints the line
# that replays it.
settings.register_profile("trellis", deadline=None, print_blob=True)
settings.load_profile("trellis")

# Java spends half of a short command's time on compiling too well what it runs once. This folder holds settings for
# every Spark that a test starts, also for those that a command starts in a process of its own.
os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "spark-defaults")

# A job in the background of a shell ignores SIGINT, and so does every program that it starts: a test that interrupts
# its child would wait forever. A handler of this process is not inherited: children start with the default action.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def logs_end_with_the_test():
    """Remove handlers that a command has added. Their stream ends with the test, and every later line would fail."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    for one in [one for one in root.handlers if type(one) is logging.StreamHandler and one not in before]:
        root.removeHandler(one)
    root.setLevel(level)


# Tests that one worker runs one after the other, by how their names begin. Spark compiles what it runs for the first
# time, so a second session costs more than its start. Kernels are compiled once as well, not once in every worker.
TOGETHER = {
    "tests/pipeline/": "pipeline",
    "tests/cycles/": "cycles",
    "tests/properties/test_maintain": "kernels",
    "tests/properties/test_construct": "kernels",
    "tests/properties/test_plan": "kernels",
    "tests/examples/test_construct": "kernels",
    "tests/examples/test_maintain": "kernels",
}

# Files whose tests look at the same long runs, certificates, wheel or browser. One worker runs a whole file, since
# every further worker would make these things again.
WHOLE_FILES = (
    "tests/papers/",
    "tests/release/test_packaging.py",
    "tests/live/test_dashboard_page.py",
    "tests/live/test_doctor.py",
)

# The order of the tests. Spark begins, since it takes longest, and the worker with the kernels compiles them. Meanwhile
# the other workers run tests of live nodes, which mostly wait. Many short tests come last, so that all workers end at
# about the same time. Tests of commands are among them: the kernels that they call are compiled by then.
ORDER = (
    *TOGETHER,
    "tests/live/",
    "tests/mqtt/",
    "tests/papers/",
    "tests/release/",
    "tests/whole/",
    "tests/seeds/",
    "tests/properties/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> tuple[int, bool]:
        at = next((at for at, begin in enumerate(ORDER) if item.nodeid.startswith(begin)), len(ORDER))
        return at, item.path.name == "test_cluster.py"  # it waits for a program that works beside the other tests

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give tests that belong together to one worker, and any other test to any worker, in the order of the tests.

    Groups (`--dist loadgroup`) would say the same, but xdist 3.8 does not see them with pytest 9.2.
    """
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # the largest number of tests first would not be our order

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(WHOLE_FILES):
                return nodeid.split("::")[0]
            return next((group for begin, group in TOGETHER.items() if nodeid.startswith(begin)), nodeid)

    return Together(config, log)
