"""Access rules, slowly: the page docs/access.md as a program. No tree, no memory, one rule after the other."""

from __future__ import annotations

from trellis.protocols.access.rules import Rule, Rules
from trellis.protocols.mqtt.topics import matches


def holds_for(rule: Rule, rules: Rules, user: str | None) -> bool:
    kind, _, name = rule.subject.partition(" ")
    if kind == "everyone":
        return True
    if kind == "anonymous":
        return user is None
    if kind == "user":
        return user == name
    return user in rules.groups[name]


def matches_topic(rule: Rule, user: str | None, client: str, topic: str) -> bool:
    """Level by level: a level that names the client or the user is that text, if it can be a level at all."""
    values = {"%c": client, "%u": user or ""}
    levels = rule.filter.split("/")
    for place, level in enumerate(levels):
        used = [value for name, value in values.items() if name in level]
        if all(value and value[0] != "$" and not set(value) & set("/+#") for value in used):
            continue
        return not rule.is_allowed and matches("/".join([*first_plain(levels[: place + 1]), "#"]), topic)
    return matches("/".join(put_in(level, values) for level in levels), topic)


def first_plain(levels: list[str]) -> list[str]:
    found: list[str] = []
    for level in levels:
        if "%c" in level or "%u" in level:
            break
        found.append(level)
    return found


def put_in(level: str, values: dict[str, str]) -> str:
    """Once, from left to right: what was put in is not looked at again."""
    out, place = "", 0
    while place < len(level):
        name = level[place : place + 2]
        out += values.get(name, level[place])
        place += 2 if name in values else 1
    return out


def may(rules: Rules, user: str | None, client: str, action: int, topic: str) -> bool:
    found = [
        rule
        for rule in rules.rules
        if rule.actions & action and holds_for(rule, rules, user) and matches_topic(rule, user, client, topic)
    ]
    if any(not rule.is_allowed for rule in found):
        return False
    return rules.is_open or bool(found)
