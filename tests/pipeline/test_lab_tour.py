"""`trellis demo`: the whole story from raw traces to a page, on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from release.pages import ROOT, blocks
from trellis.cli import demo
from trellis.cli.main import run


def test_the_tour_goes_from_raw_traces_to_a_page_that_needs_no_other_file(opened, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, value in (("USERS", 80), ("SAMPLE", 30), ("DAYS", 6), ("LIVE_S", 5)):
        monkeypatch.setattr(demo, name, value)
    assert run(["demo", "--folder", "tour"]) == 0
    said, noted = capsys.readouterr()
    assert said.count("\n$ trellis ") == 10
    assert "dashboard: http://127.0.0.1:" in noted
    page = Path("tour/report.html")
    assert page.resolve().as_uri() in said
    text = page.read_text()
    assert text.count("data:image/png;base64,") == 5
    assert "http" not in text.replace("http-equiv", "")
    for name in ("interests", "churn", "overlay.parquet", "rebuild.parquet", "omen", "spidercast", "comparison.png"):
        assert (tmp_path / "tour" / name).exists()


def test_a_step_that_fails_ends_the_tour(opened, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "USERS", 5)  # lab traces wants 20
    assert run(["demo", "--folder", "tour"]) == 2
    assert "step 1 of the tour failed" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_refused(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert run(["demo", "--folder", str(tmp_path / "file" / "tour")]) == 2
    assert "choose another --folder" in capsys.readouterr().err


@pytest.mark.slow
def test_the_python_of_the_pipelines_page_runs_on_the_traces_that_it_makes(opened, tmp_path, monkeypatch, capsys):
    """In its order and one folder; its sessions are that of the tests."""
    page = ROOT / "docs" / "pipeline.md"
    ((line,),) = [block.lines() for block in blocks(page, "console")]
    monkeypatch.chdir(tmp_path)
    assert run(line.split()[1:]) == 0
    capsys.readouterr()
    space: dict[str, object] = {}
    for block in blocks(page, "python"):
        exec(compile(block.text, block.place, "exec"), space)
    distance, *progress = capsys.readouterr().out.splitlines()
    assert 0 <= float(distance) < 1
    assert progress
    for made in ("friends", "churn", "profile"):
        assert (tmp_path / made / "manifest.json").exists()
