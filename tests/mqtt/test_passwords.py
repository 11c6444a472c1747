"""python -m trellis.live.mqtt.passwords: the file of a door's users."""

from __future__ import annotations

import io
import stat

import pytest

from trellis.live.mqtt import passwords


@pytest.fixture
def add(monkeypatch):
    def run(path, user, password):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{password}\n"))
        return passwords.main([str(path), user])

    return run


def test_a_user_is_added_and_another_password_replaces_the_first(tmp_path, add):
    path = tmp_path / "users"
    assert (add(path, "ann", "one"), add(path, "bob", "two"), add(path, "ann", "three")) == (0, 0, 0)
    known = passwords.read_passwords(str(path))
    assert known.is_right("ann", b"three")
    assert known.is_right("bob", b"two")
    assert not known.is_right("ann", b"one")


def test_nobody_else_may_read_the_file_nor_what_is_written_on_the_way(tmp_path, add, monkeypatch):
    path = tmp_path / "users"
    seen = []
    replace = type(path).replace

    def look(self, target):
        seen.append(stat.S_IMODE(self.stat().st_mode))
        return replace(self, target)

    monkeypatch.setattr(type(path), "replace", look)
    add(path, "ann", "one")
    assert [*seen, stat.S_IMODE(path.stat().st_mode)] == [0o600, 0o600]


def test_users_are_not_lost_where_the_new_file_cannot_be_written(tmp_path, add, monkeypatch, capsys):
    path = tmp_path / "users"
    add(path, "ann", "one")
    before = path.read_bytes()

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(path), "replace", full)
    assert add(path, "bob", "two") == 2
    assert path.read_bytes() == before
    assert "No space left on device" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [None, b"\xff\xfe:1"])
def test_a_file_that_cannot_be_read_or_made_is_one_clear_line(tmp_path, add, capsys, content):
    path = tmp_path / "users" if content else tmp_path / "no" / "such" / "users"
    if content:
        path.write_bytes(content)
    assert add(path, "ann", "one") == 2
    told = capsys.readouterr().err
    assert str(path) in told
    assert told.count("\n") == 1
