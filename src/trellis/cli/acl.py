"""`trellis acl check FILE` and `trellis acl why USER read TOPIC`: what an access list says.  [docs/access.md]"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trellis.cli.common import AsJson, examples, show
from trellis.cli.values import among
from trellis.errors import InputError

if TYPE_CHECKING:
    from trellis.protocols.access.rules import Rules

EXAMPLE = examples(
    "trellis acl check access.acl",
    "trellis acl why ann write plant/7/setpoint --acl access.acl",
    "trellis acl why - read public/news --acl access.acl --client sensor-7",
)
app = typer.Typer(no_args_is_help=True, epilog=EXAMPLE)

_WORDS = ("read", "write")


@app.callback()
def _acl() -> None:
    """Access lists: check one, and ask which of its rules decides."""


@app.command("check", epilog=EXAMPLE)
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The access list.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Read an access list as a node does. Exits 2, with the line, if a node would refuse it."""
    from trellis.live.access import read_rules

    rules = read_rules(str(file), "")
    empty = [name for name, users in rules.groups.items() if not users]
    told = {
        "file": str(file),
        "rules": len(rules.rules),
        "groups": len(rules.groups),
        "default": "allow" if rules.is_open else "deny",
        "groups_without_members": empty,
    }
    lines = [f"{file}: good: rules {len(rules.rules)}, groups {len(rules.groups)}", _default(rules)]
    lines += [f"group {name} has no member, so its rules hold for nobody" for name in empty]
    show(told, as_json, lines)


@app.command("why", epilog=EXAMPLE)
def why(
    user: Annotated[
        str, typer.Argument(metavar="USER", help="A user; - for a client that proves none.", show_default=False)
    ],
    action: Annotated[
        str, typer.Argument(metavar="read|write", help="The action to check.", autocompletion=among(_WORDS))
    ],
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="A topic; to read, a filter as well.", show_default=False)
    ],
    acl: Annotated[Path, typer.Option("--acl", help="The access list.", metavar="FILE", show_default=False)],
    client: Annotated[str, typer.Option("--client", help="The client's name, for rules with %c.")] = "",
    as_json: AsJson = False,
) -> None:
    """Say whether a user may read or write a topic, and which rule decides. Exits 0 if it may, and 1 if not."""
    from trellis.live.access import read_rules
    from trellis.protocols.access.decide import Access, Who
    from trellis.protocols.access.rules import ACTIONS, RULES_MAX
    from trellis.protocols.mqtt.topics import has_wildcard, is_filter

    if action not in _WORDS:
        raise InputError(action, "it is neither read nor write", "ask for one of them")
    is_asked = has_wildcard(topic)
    if not is_filter(topic) or (is_asked and action == "write"):
        raise InputError(topic, f"nobody can {action} this", "give a topic, or to read a filter such as plant/#")
    rules = read_rules(str(acl), "")
    access, who = Access(rules), Who(None if user == "-" else user, client)
    access.steps = RULES_MAX + 1
    ruling = access.explain_filter(who, topic) if is_asked else access.explain(who, ACTIONS[action], topic)
    number = ruling.rule.line if ruling.rule is not None else rules.default_line or None
    reason = f"line {number}: {ruling.rule}" if ruling.rule is not None else f"no rule decides, and {_default(rules)}"
    lines = [f"{'allowed' if ruling.is_allowed else 'denied'}: {reason}"]
    if is_asked and ruling.is_allowed:
        lines.append("the subscription is granted; each message is still checked by its own topic")
    if not client and not ruling.is_allowed and ruling.rule is None and any("%c" in one.filter for one in rules.rules):
        lines.append("rules with %c allow nothing here: give --client")
    told = {
        "user": who.user,
        "client": client,
        "action": action,
        "topic": topic,
        "allowed": ruling.is_allowed,
        "line": number,
        "rule": str(ruling.rule) if ruling.rule else None,
    }
    show(told, as_json, lines)
    if not ruling.is_allowed:
        raise typer.Exit(1)


def _default(rules: Rules) -> str:
    """Return the ruling if no rule applies, and the line that gives it."""
    where = f"line {rules.default_line}" if rules.default_line else "no line says otherwise"
    return f"the default is to {'allow' if rules.is_open else 'deny'} ({where})"
