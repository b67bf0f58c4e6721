"""A headless Chromium, driven over its DevTools pipe with nothing but the standard library."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time

FLAGS = [
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
    "--disable-extensions", "--disable-default-apps", "--mute-audio",
]


class Browser:
    def __init__(self, flags=("--no-proxy-server",), environment=None):
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if not program:
            raise SystemExit("there is no chromium")
        self.profile = tempfile.mkdtemp(prefix="curtsy-browser-")
        to_browser, self.to_browser = os.pipe()
        self.from_browser, from_browser = os.pipe()

        def give_pipes():
            # Uses copies, because a wanted descriptor number may be that of the other pipe.
            reading, writing = os.dup(to_browser), os.dup(from_browser)
            os.dup2(reading, 3)
            os.dup2(writing, 4)

        self.process = subprocess.Popen(
            [program, *FLAGS, *flags, f"--user-data-dir={self.profile}", "about:blank"],
            preexec_fn=give_pipes, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=environment)
        os.close(to_browser)
        os.close(from_browser)
        self.lock, self.answers, self.next = threading.Condition(), {}, 0
        self.pages = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        unread = b""
        while chunk := os.read(self.from_browser, 1 << 16):
            *messages, unread = (unread + chunk).split(b"\0")
            for message in map(json.loads, messages):
                with self.lock:
                    if "id" in message:
                        self.answers[message["id"]] = message
                    elif page := self.pages.get(message.get("sessionId")):
                        page.events.append(message)
                    self.lock.notify_all()

    def call(self, method, session=None, **parameters):
        with self.lock:
            self.next += 1
            number = self.next
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        with self.lock:
            if not self.lock.wait_for(lambda: number in self.answers, 30):
                raise TimeoutError(f"the browser does not answer {method}")
            answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def page(self, url, *, script=True, scheme="light", width=1280, height=860):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, target, session)
        self.pages[session] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.size(width, height)
        page.scheme(scheme)
        if not script:
            page.call("Emulation.setScriptExecutionDisabled", value=True)
        page.go(url)
        return page

    def close(self):
        try:
            self.call("Browser.close")
            self.process.wait(10)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


class Page:
    def __init__(self, browser, target, session):
        self.browser, self.target, self.session, self.events = browser, target, session, []

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def go(self, url):
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.until(lambda: any(event["method"] == "Page.loadEventFired" for event in self.events), f"{url} to load")

    def size(self, width, height):
        phone = width < 500
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def scheme(self, scheme):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def run(self, script):
        """The value of an expression, which may be a promise."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText")

    def texts(self, selector):
        return self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.innerText)")

    def click(self, selector):
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def key(self, key, text=None):
        text = text if text is not None else (key if len(key) == 1 else None)
        fields = {"key": key, **({"text": text} if text else {})}
        codes = {"Enter": 13, "Escape": 27, "Tab": 9}
        if key in codes:
            fields["windowsVirtualKeyCode"] = codes[key]
        self.call("Input.dispatchKeyEvent", type="keyDown", **fields)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def until(self, holds, what, seconds=30):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if holds():
                return
            time.sleep(0.03)
        raise AssertionError(f"waited in vain for {what}")

    def complaints(self):
        """Errors on the console, violations of the content security policy, and failed requests."""
        found = []
        for event in list(self.events):
            if event["method"] == "Runtime.exceptionThrown":
                found.append(event["params"]["exceptionDetails"].get("exception", {}).get("description"))
            if event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] in ("error", "warning"):
                found.append(event["params"]["entry"]["text"])
        return found

    def hosts_asked(self):
        """The hosts that the page sent requests to."""
        urls = [event["params"]["request"]["url"] for event in list(self.events)
                if event["method"] == "Network.requestWillBeSent"]
        return {url.split("/")[2] for url in urls if url.startswith("http")}

    def shot(self, path):
        picture = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture))

    def close(self):
        self.browser.pages.pop(self.session, None)
        self.browser.call("Target.closeTarget", targetId=self.target)
