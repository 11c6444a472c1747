"""What a shell is offered behind `trellis ...` and Tab."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

TRELLIS = Path(sys.executable).parent / "trellis"


def offered(typed: str, folder: Path | None = None) -> list[str]:
    """What bash is told where the last word is being typed."""
    words = typed.split(" ")
    asked = {"COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1), "_TRELLIS_COMPLETE": "complete_bash"}
    done = subprocess.run([TRELLIS], env={**os.environ, **asked}, capture_output=True, text=True, cwd=folder)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("trellis plan i.tsv --algorithm ", {"lowoda", "gm", "minmax", "star"}),
        ("trellis plan i.tsv --repeated ", {"merge", "refuse"}),
        ("trellis plan i.tsv --candidates ", {"auto", "all", "sampled"}),
        ("trellis workload ", {"zipf", "spidercast-rss"}),
        ("trellis workload --preset spidercast-r", {"spidercast-rss"}),
        ("trellis churn ", {"random", "crash-groups"}),
        ("trellis maintain i.tsv --backups primal", {"primal-dual", "primal-dual-carry"}),
        ("trellis simulate delivery --over ", {"omen", "magnet"}),
        ("trellis up --overlay ", {"omen", "spidercast", "vitis", "magnet"}),
        ("trellis node --log-level ", {"debug", "warning"}),
        ("trellis pipeline social --format ", {"facebook", "edges"}),
        ("trellis lab run --scale ", {"smoke", "paper"}),
        ("trellis lab run shadows-f", {"shadows-fig1"}),
    ],
)
def test_values_are_offered(typed, wanted):
    found = offered(typed)
    assert wanted <= set(found)
    assert all(one.startswith(typed.rpartition(" ")[2]) for one in found)


def test_names_of_files_are_left_to_the_shell_and_offered_beside_words(tmp_path):
    (tmp_path / "lower.tsv").touch()
    (tmp_path / "folder").mkdir()
    assert offered("trellis plan lo", tmp_path) == []
    assert offered("trellis simulate omen i.tsv --overlay ", tmp_path) == ["lowoda", "folder/", "lower.tsv"]
    assert offered("trellis simulate omen i.tsv --overlay lo", tmp_path) == ["lowoda", "lower.tsv"]


def test_words_that_are_written_down_twice_agree():
    from trellis.cli import reading, values
    from trellis.lab.experiment import SCALES
    from trellis.live.log import LEVELS
    from trellis.model.read import REPEATED
    from trellis.pipeline import jobs
    from trellis.pipeline.session import LOG_LEVELS
    from trellis.plan.api import CANDIDATES
    from trellis.plan.construction import ALGORITHMS, ALIASES, GREEDY_RULES

    assert set(values.PLAN_ALGORITHMS) == {*ALGORITHMS, *ALIASES}
    assert tuple(values.CANDIDATES) == CANDIDATES
    assert set(values.GREEDY_ALGORITHMS) == set(GREEDY_RULES)
    assert set(values.LOG_LEVELS) == set(LEVELS)
    assert set(values.SCALES) == set(SCALES)
    assert set(values.SPARK_LOG_LEVELS) == set(LOG_LEVELS)
    assert reading.REPEATED == REPEATED
    for job, formats in values.FORMATS.items():
        assert set(formats) == set(sys.modules[f"{jobs.__name__}.{job}"].FORMATS)


def test_every_word_that_is_offered_for_a_protocol_is_one_it_takes():
    from trellis.cli.simulate import PROTOCOLS
    from trellis.cli.values import SYSTEM_OPTIONS
    from trellis.simulate.systems import maker_of

    tried = set()
    for protocol in PROTOCOLS:
        maker = maker_of(protocol)
        for name in SYSTEM_OPTIONS.keys() & inspect.signature(maker.__init__).parameters.keys():
            for value in SYSTEM_OPTIONS[name]:
                maker(**{name: value})
                tried.add(name)
    assert tried == set(SYSTEM_OPTIONS)
