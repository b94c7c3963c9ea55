"""Headless Chromium, driven over a pipe with the Chrome DevTools protocol.

The browser resolves no host name, so a page that needs the network fails.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ANSWER_SECONDS = 60
EXECUTE_WITH_PIPES = """\
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Execute a browser with its pipes as descriptors 3 and 4. (`preexec_fn` would fork, and JAX warns
about a fork in a process with threads.)"""


def find_browser() -> str | None:
    """Return the path of a Chromium, `None` if there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Page:
    """A page of a browser; `errors` are its console errors, `requests` the URLs that it loads."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._rest = b""
        self._count = 0
        self._session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(1500, 950)

    def resize(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the size of the window, and the colour scheme that the user prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, path: Path, fragment: str = "") -> None:
        """Load a report, and wait until it is shown."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=path.as_uri() + fragment)
        self.wait("document.body && document.body.dataset.ready === '1'")

    def run(self, script: str) -> Any:
        """Return the value of an expression."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise AssertionError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + ANSWER_SECONDS
        while not self.run(f"!!({condition})"):
            assert time.monotonic() < until, (condition, self.errors)
            time.sleep(0.02)

    def click(self, selector: str, text: str = "") -> None:
        """Click the first visible element that a selector finds, with exactly this text if any."""
        script = f"""(() => {{
          const all = [...document.querySelectorAll({json.dumps(selector)})];
          const found = all.find((e) => e.getClientRects().length &&
            (!{json.dumps(text)} || e.textContent === {json.dumps(text)}));
          if (found) found.click();
          return !!found;
        }})()"""
        assert self.run(script), f"no {selector} {text!r} to click"
        self.settle()

    def press(self, key: str) -> None:
        """Press a key where the focus is."""
        names = {"Enter": "\r", "Escape": "\x1b"}
        text = names.get(key, key if len(key) == 1 else "")
        extra = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **extra)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def settle(self) -> None:
        """Wait until the page is drawn."""
        frame = "requestAnimationFrame(() => done(1))"
        self.run(f"new Promise((done) => setTimeout(() => {frame}, 30))")

    def texts(self, selector: str) -> list[str]:
        """Return the texts of all elements that a selector finds."""
        found: list[str] = self.run(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)"
        )
        return found

    def screenshot(self, path: Path) -> None:
        """Write a picture of the window."""
        self.settle()
        path.write_bytes(b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol and return its result."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        for answer in self._answers():
            if answer.get("id") == self._count:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer.get("method", ""), answer.get("params", {}))
        raise AssertionError("the browser closed")

    def _answers(self) -> Iterator[dict[str, Any]]:
        while True:
            while b"\0" not in self._rest:
                more = os.read(self._reads, 1 << 20)
                if not more:
                    return
                self._rest += more
            line, _, self._rest = self._rest.partition(b"\0")
            yield json.loads(line)

    def _note(self, event: str, details: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(details["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning"):
            self.errors.append(json.dumps(details["args"]))
        elif event == "Log.entryAdded":
            self.errors.append(details["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])


@contextmanager
def open_browser() -> Iterator[Page]:
    """Start a browser without a network, and close it at the end."""
    path = find_browser()
    assert path is not None
    command_reads, writes = os.pipe()
    reads, command_writes = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                EXECUTE_WITH_PIPES,
                str(command_reads),
                str(command_writes),
                path,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--remote-debugging-pipe",
                "--host-resolver-rules=MAP * ~NOTFOUND",
                f"--user-data-dir={folder}",
            ],
            pass_fds=(command_reads, command_writes),
            stderr=subprocess.DEVNULL,
        )
        os.close(command_reads)
        os.close(command_writes)
        try:
            yield Page(reads, writes)
        finally:
            process.terminate()
            process.wait(20)
            os.close(reads)
            os.close(writes)
