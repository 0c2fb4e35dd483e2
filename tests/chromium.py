"""A headless Chromium over the DevTools protocol, spoken through a pipe: no driver, no port, no
package.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def find_chromium() -> str | None:
    """Its path, from CHROMIUM or the usual names."""
    return os.environ.get("CHROMIUM") or next(
        (path for name in NAMES if (path := shutil.which(name))), None
    )


class Chromium:
    """One page. `problems` collects console errors, exceptions and failed or foreign requests."""

    def __init__(self, executable: str, timeout: float = 300.0) -> None:
        self.timeout, self._number, self._buffer = timeout, 0, b""
        self.problems: list[str] = []
        self.requests: list[str] = []
        # Its helper processes may write for a moment after it has ended.
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read_by_it, self._write = os.pipe()
        self._read, written_by_it = os.pipe()
        # It reads commands from descriptor 3 and answers on 4.
        command = [
            "bash",
            "-c",
            f'exec "$0" "$@" 3<&{read_by_it} 4>&{written_by_it}',
            executable,
            *FLAGS,
        ]
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={self._profile.name}", "about:blank"],
            pass_fds=(read_by_it, written_by_it),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_by_it)
        os.close(written_by_it)
        pages = [
            target
            for target in self.send("Target.getTargets")["targetInfos"]
            if target["type"] == "page"
        ]
        self._session = self.send(
            "Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True
        )["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *details: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if hasattr(self, "_session"):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def open(self, path: Path, width: int, dark: bool, height: int = 900) -> None:
        """Load a file as a window of this width would show it; at most 640 pixels is a phone."""
        phone = width <= 640
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self._loaded = False
        self.send("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._next()

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression on the page."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["text"])
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG file."""
        answer = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + self.timeout
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer")
            part = os.read(self._read, 2**20)
            if not part:
                raise RuntimeError("Chromium ended")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        event: dict[str, Any] = json.loads(message)
        self._note(event)
        return event

    def _note(self, event: dict[str, Any]) -> None:
        method, details = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(details["exceptionDetails"]["text"]))
        elif method == "Runtime.consoleAPICalled" and details["type"] in ("error", "warning"):
            self.problems.append(str([argument.get("value") for argument in details["args"]]))
        elif method == "Log.entryAdded" and details["entry"]["level"] in ("error", "warning"):
            self.problems.append(str(details["entry"]["text"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(str(details["request"]["url"]))
