"""Debian's Chromium without a window, driven over a pipe by its own protocol: no driver, no port, no third party.

with Chromium(folder) as browser:
    page = browser.open("http://127.0.0.1:8080/")
    page.until("document.body.dataset.ready")
    page.evaluate("document.title")
    page.click(".node")
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
FLAGS += "--disable-component-update --disable-sync --disable-extensions --disable-default-apps --mute-audio "
FLAGS += "--disable-dev-shm-usage --disable-breakpad --remote-debugging-pipe"
# The browser reads at 3 and writes at 4.
_PIPES = "import fcntl, os, sys; a, b = [fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3]]; "
_PIPES += "os.dup2(a, 3); os.dup2(b, 4); os.execv(sys.argv[3], sys.argv[3:])"
LONG_S = 60.0  # a limit that only a failure reaches


class Chromium:
    def __init__(self, folder: Path) -> None:
        """`folder` is new and empty: the browser's profile."""
        assert PROGRAM is not None
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        self._number, self._buffer = 0, b""
        self.events: list[dict[str, Any]] = []
        command = [sys.executable, "-c", _PIPES, str(to_read), str(to_write), PROGRAM, *FLAGS.split()]
        self.process = subprocess.Popen(
            [*command, f"--user-data-dir={folder}"],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.call("Browser.close")
            self.process.wait(20)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        finally:
            os.close(self._write)
            os.close(self._read)

    def open(self, address: str, width: int = 1280, height: int = 800, *, dark: bool = False) -> Page:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        is_phone = width < 500
        page.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_phone
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        page.call("Page.navigate", url=address)
        return page

    def call(self, method: str, session: str | None = None, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + LONG_S
        while True:
            answer = self._next(until)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self.events.append(answer)

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            data = os.read(self._read, 1 << 16)
            if not data:
                raise OSError("the browser has ended")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


class Page:
    def __init__(self, browser: Chromium, session: str, target: str) -> None:
        self.browser, self.session, self.target = browser, session, target

    def close(self) -> None:
        self.browser.call("Target.closeTarget", targetId=self.target)

    def call(self, method: str, **parameters: Any) -> Any:
        return self.browser.call(method, self.session, **parameters)

    def evaluate(self, script: str) -> Any:
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str) -> None:
        limit = time.monotonic() + LONG_S
        while not self.evaluate(f"Boolean(document.body && ({script}))"):
            if time.monotonic() > limit:
                raise TimeoutError(f"never so: {script}; {self.troubles()}")
            time.sleep(0.05)

    def click(self, selector: str) -> None:
        where = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        box = self.evaluate(f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({where})")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def press(self, key: str) -> None:
        codes = {"Enter": 13, " ": 32, "Tab": 9, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39}
        code = {**codes, "ArrowDown": 40}.get(key, 0)
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        more = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def troubles(self) -> list[str]:
        """What went wrong: exceptions, console errors, broken policies."""
        self.evaluate("0")
        found = []
        for one in self.browser.events:
            if one.get("sessionId") != self.session:
                continue
            if one["method"] == "Runtime.exceptionThrown":
                found.append(str(one["params"]["exceptionDetails"]))
            elif one["method"] == "Log.entryAdded" and one["params"]["entry"]["level"] == "error":
                found.append(f"{one['params']['entry'].get('url', '')} {one['params']['entry']['text']}")
        return found

    def requests(self) -> list[str]:
        """Every address that the page has asked for."""
        self.evaluate("0")
        return [
            one["params"]["request"]["url"]
            for one in self.browser.events
            if one.get("sessionId") == self.session and one["method"] == "Network.requestWillBeSent"
        ]
