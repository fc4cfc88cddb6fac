"""Headless Chromium over WebDriver (https://www.w3.org/TR/webdriver2/). Importing it exits with 77 without chromedriver."""
import base64
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

WAIT_S = 120
ENTER, ESCAPE = "\ue007", "\ue00c"
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
if not shutil.which("chromedriver") or not shutil.which("chromium"):
    print("skip: no chromedriver or no chromium (Debian: chromium-driver)")
    sys.exit(77)
os.environ["HOME"] = os.environ.get("TMPDIR", "/tmp")


class Browser:
    def __init__(self):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        line = next(l for l in self.driver.stdout if "successfully on port" in l)
        self.at = f"http://127.0.0.1:{line.split('port')[-1].strip(' .' + chr(10))}/session"
        self.session = ""
        options = {"args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--window-size=1280,900"]}
        asked = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self.session = "/" + self.call("", {"capabilities": {"alwaysMatch": asked}})["sessionId"]

    def call(self, path, body=None, method=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.at + self.session + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            return json.load(urllib.request.urlopen(request, timeout=WAIT_S))["value"]
        except urllib.error.HTTPError as e:
            raise AssertionError(f"{path}: {e.read().decode()[:600]}") from None

    def run(self, script, *arguments):
        return self.call("/execute/sync", {"script": script, "args": arguments})

    def find(self, selector):
        return self.call("/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.run("document.querySelector(arguments[0])?.scrollIntoView({block: 'center'})", selector)  # not behind the form
        self.call(f"/element/{self.find(selector)}/click", {})

    def type(self, selector, text):
        self.call(f"/element/{self.find(selector)}/value", {"text": text})

    def fill(self, selector, text):
        self.call(f"/element/{self.find(selector)}/clear", {})
        self.type(selector, text)

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def wait(self, what, script):
        end = time.monotonic() + WAIT_S
        while not self.run("return " + script):
            assert time.monotonic() < end, (f"not within {WAIT_S} s: {what}", self.text("body"))
            time.sleep(0.05)

    def open(self, url):
        self.call("/url", {"url": url})

    def media(self, name, value):
        """Emulates a media feature, such as prefers-color-scheme."""
        self.call("/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {"features": [{"name": name, "value": value}]}})

    def size(self, width, height):
        self.call("/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride",
                                        "params": {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}})

    def screenshot(self, path):
        shot = self.call("/goog/cdp/execute", {"cmd": "Page.captureScreenshot", "params": {"captureBeyondViewport": True}})
        with open(path, "wb") as f:
            f.write(base64.b64decode(shot["data"]))

    def complaints(self):
        return [e["message"] for e in self.call("/se/log", {"type": "browser"}) if e["level"] == "SEVERE"]

    def close(self):
        if self.session:
            self.call("", method="DELETE")
        self.driver.terminate()
        self.driver.wait(WAIT_S)
