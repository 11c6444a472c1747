"""For all tests: how hypothesis draws, which worker runs what, and that an interrupt reaches what the tests start."""

import logging
import signal

import pytest
from hypothesis import settings

# No deadline: the first example of a test may compile a kernel, and machines are shared. A failure prints the line
# that replays it.
settings.register_profile("trellis", deadline=None, print_blob=True)
settings.load_profile("trellis")

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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give tests that belong together to one worker, as its first work, and any other test to any worker.

    Meanwhile the other workers run tests of live nodes, which mostly wait. Groups (`--dist loadgroup`) would say the
    same, but xdist 3.8 does not see them with pytest 9.2.
    """
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((group for begin, group in TOGETHER.items() if nodeid.startswith(begin)), nodeid)

    return Together(config, log)
