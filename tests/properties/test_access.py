"""Access rules: the fast decision is the slow one, whatever the rules, the names and the order of questions."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.access import may
from trellis.errors import InputError
from trellis.protocols.access import decide
from trellis.protocols.access import quotas as quotas_module
from trellis.protocols.access.decide import Access, Who, includes, overlaps
from trellis.protocols.access.quotas import Quotas
from trellis.protocols.access.rules import ACTIONS, READ, WRITE, Rule, Rules, parse_rules
from trellis.protocols.mqtt.topics import is_filter, matches

LEVELS = ("a", "b", "", "$a")
TOPICS = ["/".join(levels) for count in (1, 2, 3) for levels in product(LEVELS, repeat=count) if "/".join(levels)]
USERS = (None, "ann", "bob", "a", "$a", "a/b", "#", "+", "%c")
CLIENTS = ("", "a", "b", "a/b", "#", "%u", "ann")

filters = (
    st.lists(st.sampled_from([*LEVELS, "+", "#", "%c", "%u", "%", "x%u", "%c%u"]), min_size=1, max_size=4)
    .map("/".join)
    .filter(is_filter)
)
subjects = st.sampled_from(["everyone", "anonymous", "user ann", "user a", "user a/b", "group g", "group h"])


@st.composite
def lists(draw) -> Rules:
    drawn = draw(st.lists(st.tuples(subjects, st.booleans(), st.sampled_from([1, 2, 3]), filters), max_size=8))
    rules = tuple(Rule(line, *one) for line, one in enumerate(drawn, 1))
    members = st.frozensets(st.sampled_from(USERS[1:]), max_size=6)
    return Rules(rules, {"g": draw(members), "h": draw(members)}, draw(st.booleans()))


whos = st.builds(Who, st.sampled_from(USERS), st.sampled_from(CLIENTS))


@given(lists(), st.lists(st.tuples(whos, st.sampled_from(TOPICS)), max_size=12))
@settings(max_examples=100)
def test_a_decision_is_that_of_the_rules_read_one_by_one(rules, asked):
    access = Access(rules)
    for who, topic in [*asked, *asked]:  # the second time from what is remembered
        for action in (READ, WRITE):
            expected = may(rules, who.user, who.client, action, topic)
            assert bool(access.rights(who, topic) & action) == expected
            found = access.explain(who, action, topic)
            assert found.is_allowed == expected
            assert found.rule is None or found.rule in rules.rules


@given(lists(), lists(), whos, st.sampled_from(TOPICS))
def test_new_rules_hold_at_once_whatever_was_remembered(old, new, who, topic):
    access = Access(old)
    access.rights(who, topic)
    access.use(new)
    assert access.may_read(who, topic) == may(new, who.user, who.client, READ, topic)


@given(lists(), whos, filters)
@settings(max_examples=100)
def test_a_subscription_is_refused_only_if_nothing_of_it_may_be_read(rules, who, filter_):
    if Access(rules).may_subscribe(who, filter_):
        return
    assert not [one for one in TOPICS if matches(filter_, one) and may(rules, who.user, who.client, READ, one)]


def test_overlaps_and_includes_agree_with_what_the_filters_match():
    """All pairs of filters of up to three levels. A topic of three levels then tells all that can be told."""
    levels = ("a", "", "$a", "+", "#")
    texts = ["/".join(some) for count in (1, 2, 3) for some in product(levels, repeat=count)]
    topics = ["", *TOPICS]  # the empty one is no topic, and filters are compared as if it were
    matched = {one: {topic for topic in topics if matches(one, topic)} for one in texts if is_filter(one)}
    assert len(matched) > 80
    for (first, mine), (second, others) in product(matched.items(), repeat=2):
        assert overlaps(first, second) == bool(mine & others), (first, second)
        if includes(first, second):
            deep = {f"{one}/b" for one in TOPICS if matches(second, f"{one}/b")}  # beyond three levels
            assert all(matches(first, one) for one in others | deep), (first, second)


def test_a_member_of_a_group_has_its_rights_and_names_are_put_in_once():
    text = b"[group g]\nmember ann\nallow read a\n[everyone]\nallow write x/%u/%c\n"
    access = Access(parse_rules(text, "f"))
    assert access.may_read(Who("ann", "c"), "a")
    assert not access.may_read(Who("bob", "c"), "a")
    assert not access.may_write(Who("%c", "secret"), "x/secret/secret")
    assert access.may_write(Who("%c", "secret"), "x/%c/secret")


@given(st.lists(st.tuples(whos, st.text("ab/", min_size=1, max_size=6)), max_size=60))
def test_what_is_remembered_is_bounded(asked):
    access, before = Access(Rules(is_open=True)), decide.KNOWN_MAX
    decide.KNOWN_MAX = 5
    try:
        for who, topic in asked:
            access.rights(who, topic)
            assert sum(map(len, access._known.values())) == access._known_count <= 5
    finally:
        decide.KNOWN_MAX = before


@given(lists())
def test_rules_that_are_written_down_are_read_back(rules):
    lines = [f"default {'allow' if rules.is_open else 'deny'}"]
    for name, users in rules.groups.items():
        lines += [f"[group {name}]", *(f"member {user}" for user in sorted(users))]
    for rule in rules.rules:
        action = next(name for name, actions in ACTIONS.items() if actions == rule.actions)
        lines += [f"[{rule.subject}]", f"{'allow' if rule.is_allowed else 'deny'}\t{action}   {rule.filter}"]
    found = parse_rules("\r\n".join(lines).encode(), "f")
    assert [str(one) for one in found.rules] == [str(one) for one in rules.rules]
    assert (found.groups, found.is_open) == (rules.groups, rules.is_open)


@given(st.binary(max_size=200))
def test_whatever_the_bytes_are_they_are_rules_or_one_clear_error(data):
    try:
        parse_rules(data, "f")
        told = "f:1: "
    except InputError as error:
        told = str(error)
    assert "\n" not in told
    assert told.startswith("f:")


rates = st.integers(1, 50)


@given(rates, rates, st.lists(st.tuples(st.integers(0, 400), st.integers(1, 100)), max_size=60))
def test_a_client_that_waits_as_it_is_told_keeps_within_its_rates(messages, kilobytes, sent):
    """Q1, against the sums of every stretch of time."""
    limits = {"everyone": {"client messages": messages, "user bytes": kilobytes * 10}}
    quotas, now_ms, log = Quotas(Rules(limits=limits)), 1_000, []
    for pause_ms, size in sent:
        now_ms += pause_ms
        log.append((now_ms, size))
        now_ms += quotas.charge("ann", "c", size, now_ms)
    for place, (began_ms, _) in enumerate(log):
        for last in range(place, len(log)):
            seconds = (log[last][0] - began_ms) / 1_000 + 1  # and the burst
            assert last - place <= messages * seconds + 1e-6
            assert sum(size for _, size in log[place:last]) <= kilobytes * 10 * seconds + 1e-6


def test_rates_at_rest_are_forgotten_and_the_others_are_not():
    quotas, before = Quotas(Rules(limits={"everyone": {"client messages": 1}})), quotas_module.RATES_MAX
    quotas_module.RATES_MAX = 4
    try:
        for number in range(20):
            quotas.charge(None, f"c{number}", 1, 2_000 * number)
            quotas.charge(None, "busy", 1, 2_000 * number)
            quotas.charge(None, "busy", 1, 2_000 * number)
            quotas.charge(None, "busy", 1, 2_000 * number)
            assert len(quotas._used_ms) <= 5
        assert quotas.charge(None, "busy", 1, 38_000) > 19_000
    finally:
        quotas_module.RATES_MAX = before


@pytest.mark.parametrize(("user", "expected"), [(None, 7), ("nobody", 1), ("ann", 5), ("bob", 9), ("cid", 3)], ids=str)
def test_the_limit_of_the_narrowest_section_counts_and_of_groups_the_largest(user, expected):
    text = """
        [everyone]
        limit client messages 1
        [anonymous]
        limit client messages 7
        [group small]
        member ann
        member bob
        member cid
        limit client messages 3
        [group large]
        member ann
        member bob
        limit client messages 5
        [user bob]
        limit client messages 9
    """
    assert Quotas(parse_rules(text.encode(), "f")).limits(user) == {"client messages": expected}
