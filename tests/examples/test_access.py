"""Access lists as files, tokens, and the commands that tell what a list says."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import shlex
from pathlib import Path

import pytest

from trellis.cli.main import run
from trellis.errors import InputError
from trellis.protocols.access.rules import FILE_BYTES_MAX, FILTER_LETTERS_MAX, RULES_MAX, parse_rules
from trellis.protocols.access.tokens import LEEWAY_S, TOKEN_BYTES_MAX, TokenError, is_token, read_token

LIST = """\
# Plant 7.
[everyone]
allow read public/#
allow readwrite clients/%c/#

[group operators]
member ann
allow readwrite plant/#
deny write plant/+/setpoint
"""
KEY = b"0123456789abcdef0123456789abcdef"
NOW = 1_800_000_000


# The file


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"[everyone]\npermit read a", 'f:2: "permit" begins no line'),
        (b"allow read a", "f:1: a rule stands before the first section"),
        (b"[everyone]\nallow a/b", "f:2: the rule is not complete"),
        (b"[everyone]\nallow read", "f:2: the rule is not complete"),
        (b"[everyone]\nallow read a#", 'f:2: "a#" is no topic filter'),
        (b"[everyone]\nallow read a/\x07", "f:2: "),
        (b"[everyone]\n\nallow read \xff", "f:3: the line is not UTF-8"),
        (b"[everyone ann]", "f:1: there is no such section"),
        (b"[user]", "f:1: there is no such section"),
        (b"[user ann", "f:1: the section does not end with ]"),
        (b"[user ann]\nmember bob", "f:2: a member stands outside a group"),
        (b"[group g]\nmember", "f:2: this cannot be a name"),
        (b"limit client messages 5", "f:1: a limit stands before the first section"),
        (b"[everyone]\nlimit client connections 5", "f:2: there is no such limit"),
        (b"[everyone]\nlimit user bytes", "f:2: there is no such limit"),
        (b"[everyone]\nlimit user bytes 0", "f:2: the limit is no number above 0"),
        (b"[everyone]\nlimit user bytes -5", "f:2: the limit is no number above 0"),
        (b"[everyone]\nlimit user bytes " + b"9" * 5_000, "f:2: the limit is no number above 0"),
        (b"[everyone]\nlimit user bytes 5\nlimit user bytes 6", "f:3: [everyone] has this limit already"),
        (b"default maybe", "f:1: the default is neither"),
        (b"default deny\ndefault deny", "f:2: line 1 gives a default already"),
        (b"[user " + b"x" * 513 + b"]", "f:1: this cannot be a name"),
        (b"[everyone]\nallow read " + b"x" * (FILTER_LETTERS_MAX + 1), "f:2: the topic filter is too long"),
        (b"[everyone]\nallow read " + b"a/" * 201, "f:2: the topic filter is too long"),
        (b"[everyone]\n" + b"allow read a\n" * (RULES_MAX + 1), f"f:{RULES_MAX + 2}: there are more than {RULES_MAX}"),
        (b"#" * (FILE_BYTES_MAX + 1), f"f: it has {FILE_BYTES_MAX + 1} bytes"),
    ],
)
def test_a_list_with_a_fault_is_refused_with_its_line_and_a_remedy(text, told):
    with pytest.raises(InputError) as caught:
        parse_rules(text, "f")
    assert str(caught.value).startswith(told)
    assert caught.value.remedy


def test_names_and_filters_may_hold_blanks_and_a_comment_is_a_whole_line():
    rules = parse_rules("\ufeff[user line 1 [b]]\r\nallow  read\tplant/line 1/#\r\n  # no rule\r\n".encode(), "f").rules
    assert [str(one) for one in rules] == ["[user line 1 [b]] allow read plant/line 1/#"]


# The commands


@pytest.mark.parametrize(
    ("asked", "code", "told"),
    [
        ("ann write plant/7/setpoint", 1, "denied: line 9: [group operators] deny write plant/+/setpoint"),
        ("ann read plant/7/setpoint", 0, "allowed: line 8: [group operators] allow readwrite plant/#"),
        ("ann read plant/#", 0, "allowed: line 8: "),
        ("bob read plant/#", 1, "denied: no rule decides, and the default is to deny (no line says otherwise)"),
        ("- read public/news", 0, "allowed: line 3: [everyone] allow read public/#"),
        ("- write clients/x/y --client x", 0, "allowed: line 4: "),
        ("- write clients/x/y", 1, "rules with %c allow nothing here: give --client"),
    ],
)
def test_why_names_the_rule_that_decides_and_its_line(tmp_path, capsys, asked, code, told):
    (tmp_path / "a.acl").write_text(LIST)
    assert run(["acl", "why", *asked.split(), "--acl", str(tmp_path / "a.acl")]) == code
    assert told in capsys.readouterr().out


def test_why_and_check_speak_to_machines(tmp_path, capsys):
    path = tmp_path / "a.acl"
    path.write_text(f"{LIST}[group empty]\ndefault allow\n")
    assert run(["acl", "why", "bob", "write", "x", "--acl", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["allowed"], told["line"], told["rule"]) == (True, 11, None)
    assert run(["acl", "check", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rules"], told["default"], told["groups_without_members"]) == (4, "allow", ["empty"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["check", "a.acl"], "a.acl:1: "),
        (["check", "none.acl"], "none.acl: no such file or directory"),
        (["why", "ann", "eat", "x", "--acl", "good.acl"], "eat: it is neither read nor write"),
        (["why", "ann", "write", "x/#", "--acl", "good.acl"], "x/#: nobody can write this"),
        (["why", "ann", "read", "x#", "--acl", "good.acl"], "x#: nobody can read this"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(tmp_path, monkeypatch, capsys, words, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.acl").write_text("nonsense\n")
    (tmp_path / "good.acl").write_text(LIST)
    assert run(["acl", *words]) == 2
    assert told in capsys.readouterr().err


def test_the_page_shows_the_example_and_what_the_commands_print_about_it(monkeypatch, capsys):
    root = Path(__file__).parents[2]
    monkeypatch.chdir(root)
    page = Path("docs/access.md").read_text("utf-8")
    assert f"```acl\n{Path('examples/operator/plant.acl').read_text('utf-8')}```" in page
    shown = page.partition("```text\n")[2].partition("```")[0]
    printed = ""
    for line in re.findall(r"^\$ .*", shown, re.MULTILINE):
        run(shlex.split(line)[2:])
        printed += f"{line}\n{capsys.readouterr().out}"
    assert printed == shown


# Tokens


def part(said: object) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(said).encode()).rstrip(b"=")


def token(head: object = None, key: bytes = KEY, **claims: object) -> bytes:
    said = {"sub": "ann", "exp": NOW + 60, **claims}
    given = {name: value for name, value in said.items() if value is not None}
    signed = part(head or {"alg": "HS256"}) + b"." + part(given)
    return signed + b"." + base64.urlsafe_b64encode(hmac.digest(key, signed, hashlib.sha256)).rstrip(b"=")


def test_the_token_of_rfc_7515_is_read():
    """Appendix A.1: a signature that is not of our own making. It has no sub."""
    key = base64.urlsafe_b64decode(
        b"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow=="
    )
    given = (
        b"eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9."
        b"eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ."
        b"dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    )
    with pytest.raises(TokenError, match="sub and exp are missing"):
        read_token(given, key, 1_300_819_000)
    with pytest.raises(TokenError, match="signature"):
        read_token(given[:-1] + b"A", key, 1_300_819_000)


def test_a_good_token_names_its_user():
    given = token(nbf=NOW - 1, groups=["ignored"])
    assert is_token(given)
    assert read_token(given, KEY, NOW).sub == "ann"
    assert read_token(token(aud=["x", "mesh"]), KEY, NOW, "mesh").sub == "ann"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (token(key=b"y" * 32), "signature"),
        (token({"alg": "none"}), "another algorithm"),
        (token({"alg": "none"}).rpartition(b".")[0] + b".", "form"),
        (token({"alg": "RS256"}), "another algorithm"),
        (token({"alg": "HS256", "crit": ["exp"]}), "another algorithm"),
        (token({"typ": "JWT"}), "wrong type"),
        (token(exp=NOW - LEEWAY_S), "expired"),
        (token(exp=None), "missing"),
        (token(exp="tomorrow"), "wrong type"),
        (token(exp=True), "wrong type"),
        (token(nbf=NOW + LEEWAY_S + 1), "not valid yet"),
        (token(sub=None), "missing"),
        (token(sub=""), "name of a user"),
        (token(sub="a\nb"), "name of a user"),
        (token(sub="x" * 513), "name of a user"),
        (token(aud="another"), "aud"),
        (token(aud=[]), "aud"),
        (token()[:-5], "signature"),
        (token() + b"=", "form"),
        (token(pad="x" * TOKEN_BYTES_MAX), "form"),
        (b"eyJ..", "form"),
        (b"", "form"),
    ],
)
def test_a_token_that_proves_nothing_is_refused(given, told):
    with pytest.raises(TokenError, match=told):
        read_token(given, KEY, NOW)


def test_an_audience_that_is_asked_for_must_be_there():
    for given in (token(), token(aud="another"), token(aud=["a", "b"])):
        with pytest.raises(TokenError, match="aud"):
            read_token(given, KEY, NOW, "mesh")


def test_bytes_that_were_changed_anywhere_are_refused():
    good = token()
    for place in range(0, len(good), 7):
        other = b"A" if good[place : place + 1] != b"A" else b"B"
        with pytest.raises(TokenError):
            read_token(good[:place] + other + good[place + 1 :], KEY, NOW)
