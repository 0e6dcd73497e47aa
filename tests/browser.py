"""A real Chromium without a driver of its own: it is spoken to over two pipes, as its DevTools are."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WAIT_S = 30.0


def find_chromium() -> str | None:
    given = os.environ.get("FINDWALL_CHROMIUM")
    return given or next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One browser, one page at a time."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="findwall-chromium-", ignore_cleanup_errors=True)
        self._count = itertools.count(1)
        self._unread = b""
        self.events: list[dict[str, Any]] = []
        its_input, self._send = os.pipe()
        self._receive, its_output = os.pipe()
        try:
            self._process = _start(program, self._profile.name, its_input, its_output)
        finally:
            os.close(its_input)
            os.close(its_output)
        page = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self.call("Target.attachToTarget", {"targetId": page, "flatten": True})
        self.session: str | None = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", {"enabled": True})

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._write({"id": next(self._count), "method": "Browser.close"})
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._send)
        os.close(self._receive)
        self._profile.cleanup()

    session: str | None = None

    def call(self, method: str, given: dict[str, Any] | None = None) -> dict[str, Any]:
        number = next(self._count)
        message = {"id": number, "method": method, "params": given or {}}
        if self.session is not None and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self.session
        self._write(message)
        while True:
            answer = self._read()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def open(
        self, page: Path, width: int = 1400, height: int = 900, dark: bool = False, script: bool = True
    ) -> None:
        """Load a file and wait until it has drawn itself."""
        self.events.clear()
        phone = width < 600
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.call("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", {"media": "", "features": [scheme]})
        self.call("Emulation.setScriptExecutionDisabled", {"value": not script})
        self.call("Page.navigate", {"url": page.resolve().as_uri()})
        self._wait_for("Page.loadEventFired")
        if script:
            self.run("new Promise(done => requestAnimationFrame(() => setTimeout(done, 120)))")

    def run(self, expression: str) -> Any:
        """The value of an expression in the page; promises are waited for."""
        given = {"expression": expression, "awaitPromise": True, "returnByValue": True, "userGesture": True}
        answer = self.call("Runtime.evaluate", given)
        if "exceptionDetails" in answer:
            raise RuntimeError(
                answer["exceptionDetails"].get("exception", {}).get("description", "it failed")
            )
        return answer["result"].get("value")

    def press(self, key: str, shift: bool = False) -> None:
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        code = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40, "ArrowUp": 38}.get(
            key, 0
        )
        given = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", {"type": "keyDown", "text": text, **given})
        self.call("Input.dispatchKeyEvent", {"type": "keyUp", **given})

    def screenshot(self, target: Path, whole: bool = False) -> None:
        given: dict[str, Any] = {"format": "png", "optimizeForSpeed": False}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            given |= {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "scale": 1, **_sides(size)}}
        target.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", given)["data"]))

    def screenshot_of(self, target: Path, selector: str) -> None:
        """One element and a little around it."""
        box = self.run(
            f"(() => {{ const box = document.querySelector('{selector}').getBoundingClientRect();"
            " return [box.x + scrollX - 20, box.y + scrollY, box.width + 40, box.height + 10]; })()"
        )
        clip = dict(zip(("x", "y", "width", "height"), box, strict=True)) | {"scale": 1}
        given = {"format": "png", "captureBeyondViewport": True, "clip": clip}
        target.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", given)["data"]))

    def errors(self) -> list[str]:
        """What the page complained of since it was opened: exceptions, refused scripts and styles."""
        self.run("1") if self.session else None
        found = []
        for event in self.events:
            given = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(str(given["exceptionDetails"].get("exception", given["exceptionDetails"])))
            if event.get("method") == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
                found.append(given["entry"]["text"])
            if event.get("method") == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning"):
                found.append(str(given["args"]))
        return found

    def requests(self) -> list[str]:
        """What it asked for since it was opened, the file itself among it."""
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def _wait_for(self, method: str) -> None:
        until = time.monotonic() + WAIT_S
        while not any(event.get("method") == method for event in self.events):
            if time.monotonic() > until:
                raise TimeoutError(method)
            self.events.append(self._read())

    def _write(self, message: dict[str, Any]) -> None:
        rest = json.dumps(message).encode() + b"\0"
        while rest:
            rest = rest[os.write(self._send, rest) :]

    def _read(self) -> dict[str, Any]:
        until = time.monotonic() + WAIT_S
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._receive], [], [], max(until - time.monotonic(), 0.0))
            if not ready:
                raise TimeoutError("the browser does not answer")
            got = os.read(self._receive, 1 << 20)
            if not got:
                raise RuntimeError("the browser has gone")
            self._unread += got
        first, _, self._unread = self._unread.partition(b"\0")
        answer: dict[str, Any] = json.loads(first)
        return answer


def _sides(size: dict[str, Any]) -> dict[str, Any]:
    return {"width": size["width"], "height": size["height"]}


def _start(program: str, profile: str, its_input: int, its_output: int) -> subprocess.Popen[bytes]:
    """Chromium reads from file descriptor 3 and answers on 4."""
    options = [
        "--headless=new",
        "--remote-debugging-pipe",
        f"--user-data-dir={profile}",
        "--no-first-run",
        "--no-default-browser-check",
        "--disable-gpu",
        "--hide-scrollbars",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--force-color-profile=srgb",
        "--font-render-hinting=none",
        "--disable-lcd-text",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
    ]
    command = f'exec "$0" "$@" 3<&{its_input} 4>&{its_output}'
    return subprocess.Popen(
        ["/bin/bash", "-c", command, program, *options, "about:blank"],
        pass_fds=(its_input, its_output),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def axe_source() -> str | None:
    """The checker of accessibility that `make browser` fetches."""
    path = Path(__file__).resolve().parents[1] / ".browser" / "package" / "axe.min.js"
    return path.read_text() if path.is_file() else None
