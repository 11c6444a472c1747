"""The page in a real browser: what is drawn is what was told, names cannot do anything, and keys suffice."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from live import chromium
from live.chromium import Chromium, Page
from live.test_dashboard import LINES, recording, told
from trellis.live.dashboard import Dashboard
from trellis.live.view import ReportedRepair, Snapshot

pytestmark = [
    pytest.mark.skipif(chromium.PROGRAM is None, reason="Chromium is not installed"),
    pytest.mark.xdist_group("chromium"),
]
EVIL_TOPIC = "<img/src=x/onerror=\"document.title='pwned'\">"
EVIL_NODE = "</text><script>document.title='pwned'</script>"
ALL = [told("a", "t u", "b c"), told("b", "t", "a"), told("c", f"t u {EVIL_TOPIC}", "a d")]
ALL += [told("d", "u", "c"), told(EVIL_NODE, "v")]


def now_ms() -> int:
    return int(time.time() * 1_000)


class Theatre:
    """A dashboard in a thread, of a mesh that the test plays."""

    def __init__(self, dashboard: Dashboard) -> None:
        self.dashboard = dashboard
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.do(self._start)

    async def _start(self) -> None:
        self.dashboard.bind("127.0.0.1:0")
        self.dashboard.serve()

    def do(self, work: Callable[[], Any]) -> None:
        """In the dashboard's thread."""

        async def inside() -> None:
            found = work()
            if asyncio.iscoroutine(found):
                await found

        asyncio.run_coroutine_threadsafe(inside(), self.loop).result(60)

    def take(self, *snapshots: Snapshot) -> None:
        self.do(lambda: [self.dashboard.view.take(one, now_ms()) for one in snapshots])

    def end(self) -> None:
        self.do(self.dashboard.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.dashboard.port}/"


@pytest.fixture(scope="module")
def browser(tmp_path_factory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("chromium")) as found:
        try:
            found.call("Browser.getVersion")
        except (OSError, TimeoutError) as error:
            pytest.skip(f"Chromium is installed and does not run here: {error}")
        yield found


@pytest.fixture
def theatre() -> Iterator[Theatre]:
    made = Theatre(Dashboard())
    made.take(*ALL)
    yield made
    made.end()


@pytest.fixture
def page(browser, theatre) -> Iterator[Page]:
    opened = browser.open(theatre.address)
    opened.until(
        "document.querySelectorAll('.node').length === 5 && document.querySelectorAll('path.link').length === 3"
    )
    yield opened
    assert opened.troubles() == []
    assert opened.evaluate("document.title") == "Trellis"
    assert {one for one in opened.requests() if not one.startswith(theatre.address)} <= {"about:blank"}
    opened.close()


def names(page: Page, selector: str) -> list[str]:
    found = page.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.dataset.name)")
    return sorted(found)


def texts(page: Page, selector: str) -> list[str]:
    found: list[str] = page.evaluate(
        f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)"
    )
    return found


def choose_topic(page: Page, topic: str) -> None:
    page.evaluate(
        f"[...document.querySelectorAll('#topic-list li')].find((one) => one.title === {json.dumps(topic)}).click()"
    )
    page.until(f"document.querySelector('#topic-list [aria-selected=true]').title === {json.dumps(topic)}")


def test_the_page_shows_the_mesh(page):
    assert names(page, ".node.up") == sorted(["a", "b", "c", "d", EVIL_NODE])
    assert texts(page, "#totals dd") == ["5", "3", "4"]
    page.until("document.querySelector('#health').textContent === 'Every topic is connected'")
    top = page.evaluate("document.querySelector('[data-name=a]').getBoundingClientRect().y")
    assert top > 0


def test_names_are_shown_as_text_and_do_nothing(page, theatre):
    choose_topic(page, EVIL_TOPIC)
    page.evaluate(
        f"[...document.querySelectorAll('.node')].find((one) => one.dataset.name === {json.dumps(EVIL_NODE)})"
        ".dispatchEvent(new Event('click'))"
    )
    page.until(f"document.querySelector('#details-title').textContent === {json.dumps(EVIL_NODE)}")
    theatre.take(told(EVIL_NODE, EVIL_TOPIC, mends=(ReportedRepair("<b>", 1, "<i>", 5, 5),)))
    page.until("[...document.querySelectorAll('#log li')].some((one) => one.textContent.includes('<i>'))")
    assert page.evaluate("document.querySelectorAll('img, main script, #log b b, #log i i').length") == 0


def test_a_chosen_topic_lights_its_nodes_and_links_and_dims_the_others(page):
    choose_topic(page, "t")
    assert names(page, ".node.lit") == ["a", "b", "c"]
    assert names(page, ".node.dim") == sorted(["d", EVIL_NODE])
    assert page.evaluate("document.querySelectorAll('path.link.lit').length") == 2
    assert "3 nodes, 2 links · connected" in texts(page, "#focus")[0]
    page.evaluate("document.querySelector('#focus button').click()")
    page.until("!document.querySelector('.node.dim')")


def test_a_split_topic_is_said_listed_first_and_coloured_by_its_parts(page, theatre):
    theatre.take(told("a", "t u", "b"), told("c", "t u", "d"))
    page.until("document.querySelector('#health').textContent === '2 topics are split'")
    assert texts(page, "#topic-list li.split .text") == ["t", "u"]
    assert texts(page, "#topic-list li .text")[1:3] == ["t", "u"]
    choose_topic(page, "t")
    assert (names(page, ".node.part-0"), names(page, ".node.part-1")) == (["a", "b"], ["c"])
    colours = page.evaluate(
        "new Promise((done) => setTimeout(() => done(['a', 'b', 'c'].map((one) => getComputedStyle("
        "document.querySelector(`.node[data-name=${one}] .dot`)).fill)), 600))"
    )
    assert colours[0] == colours[1] != colours[2]
    assert "split into 2 parts: 2 + 1" in texts(page, "#focus")[0]


def test_a_crash_and_its_mend_are_shown_as_they_happen(page, theatre):
    theatre.do(lambda: theatre.dashboard.view.down("c", "down", now_ms()))
    page.until("document.querySelector('.node.down')")
    assert names(page, ".node.down") == ["c"]
    page.until("document.querySelectorAll('path.link.broken').length === 2")
    theatre.take(told("a", "t u", "b c", mending=(ReportedRepair("crash", 7, "c", 2_100),)))
    page.until("document.querySelector('.node.mends')")
    assert names(page, ".node.mends") == ["a"]
    over = (ReportedRepair("crash", 7, "c", 2_100, 84),)
    theatre.take(told("a", "t u", "b d", mends=over), told("d", "u", "a"))
    page.until("document.querySelector('path.link.fresh') && !document.querySelector('path.link.broken')")
    page.until("document.querySelector('#log li.mended')")
    assert texts(page, "#log li.mended span")[0] == "a repaired c’s crash"
    assert texts(page, "#log li.mended b")[0] == "84 ms"
    assert texts(page, "#log li.down span") == ["c is down"]
    assert not page.evaluate("Boolean(document.querySelector('.node.mends'))")


def test_a_node_is_chosen_by_a_click_and_its_details_lead_on(page):
    page.click(".node[data-name=a] .dot")
    page.until("document.querySelector('#details-title').textContent === 'a'")
    assert texts(page, "#details .peers button") == ["b", "c"]
    assert texts(page, "#details .chip") == ["t", "u"]
    page.evaluate("document.querySelector('#details .chip').click()")
    page.until("document.querySelector('#focus b').textContent === 't'")
    page.evaluate("document.querySelectorAll('#details .peers button')[1].click()")
    page.until("document.querySelector('#details-title').textContent === 'c'")


def test_keys_go_round_the_circle_and_choose(page):
    page.evaluate("document.querySelector('.node[tabindex=\"0\"]').focus()")
    order = page.evaluate("[...document.querySelectorAll('.node')].map((one) => one.dataset.name)")
    page.press("ArrowRight")
    first = page.evaluate("document.activeElement.dataset.name")
    page.press("ArrowLeft")
    page.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.name") == first
    assert first in order
    page.press("Enter")
    page.until(f"document.querySelector('#details-title').textContent === {json.dumps(first)}")
    page.press("Escape")
    page.until("document.querySelector('#details-title').textContent === 'Node'")
    page.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.call("Input.insertText", text="v")
    page.until("document.querySelectorAll('#topic-list li').length === 2")
    page.press("Enter")
    page.until("document.querySelector('#focus b').textContent === 'v'")


def test_the_series_grow_by_a_sample_a_second(page):
    page.until("document.querySelectorAll('#charts path.line').length === 6")
    assert len(texts(page, "#charts h3")) == 4
    before = page.evaluate("document.querySelector('#charts path.line').getAttribute('d')")
    page.until(f"document.querySelector('#charts path.line').getAttribute('d').length > {len(before)}")
    assert texts(page, "#charts figure:first-child b") == ["2", "1.2"]


def test_it_fits_a_phone_and_follows_the_system_into_the_dark(browser, theatre):
    phone = browser.open(theatre.address, 390, 844, dark=True)
    phone.until("document.querySelectorAll('.node').length === 5")
    assert phone.evaluate("document.documentElement.scrollWidth") == 390
    assert phone.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 27)"
    phone.click("#theme")
    phone.until("getComputedStyle(document.body).backgroundColor === 'rgb(246, 245, 241)'")
    assert phone.troubles() == []
    phone.close()


def test_a_change_in_a_large_mesh_touches_only_what_has_changed(browser, theatre):
    crowd = {f"n{number}": [f"n{(number + step) % 200}" for step in (1, -1, 40, -40, 77, -77)] for number in range(200)}
    theatre.take(*(told(name, "t u v", " ".join(peers)) for name, peers in crowd.items()))
    page = browser.open(theatre.address)
    page.until(
        "document.querySelectorAll('.node').length === 205 && document.querySelectorAll('path.link').length === 603"
    )
    page.evaluate("for (const one of document.querySelectorAll('.node, path.link')) one.dataset.kept = 'yes'")
    theatre.take(told("n0", "t u v", " ".join(crowd["n0"][1:])))
    page.until("document.querySelectorAll('path.link:not(.leaving)').length === 602")
    assert page.evaluate("document.querySelectorAll('.node:not([data-kept]), path.link:not([data-kept])').length") == 0
    assert page.troubles() == []
    page.close()


def test_a_recorded_run_has_a_time_that_can_be_set_and_played(browser, tmp_path):
    from trellis.lab.film import film

    theatre = Theatre(Dashboard.of_recording(film(recording(tmp_path, LINES))))
    try:
        page = browser.open(theatre.address)
        page.until("document.body.dataset.ready === 'replay' && document.querySelectorAll('.node.up').length === 2")
        assert texts(page, "#clock") == ["6.0 s"]

        def to(time_ms: int) -> None:
            page.evaluate(f"(() => {{ slider.value = '{time_ms}'; slider.dispatchEvent(new Event('input')); }})()")
            page.until(f"document.querySelector('#clock').textContent === '{time_ms / 1_000:.1f} s'")

        to(2_000)
        page.until("document.querySelectorAll('path.link').length === 1")
        assert texts(page, "#health") == ["Every topic is connected"]
        to(3_000)
        page.until("document.querySelector('.node.down')")
        assert names(page, ".node.down") == ["b"]
        to(5_000)
        page.until("document.querySelectorAll('.node.up').length === 2")
        assert texts(page, "#health") == ["1 topic is split"]
        assert "pause a" in texts(page, "#log li.fault span")
        to(2_000)
        page.until("document.querySelectorAll('path.link').length === 1")
        assert not page.evaluate("Boolean(document.querySelector('.node.down'))")
        page.evaluate("document.querySelector('#speed').value = '100'")
        page.click("#play")
        page.until("document.querySelector('#clock').textContent === '6.0 s'")
        page.until("document.querySelector('#play').textContent === '▶'")
        assert len(texts(page, "#log li")) == 5
        assert page.troubles() == []
        page.close()
    finally:
        theatre.end()
