"""A real browser for tests: headless Chromium, driven over its WebDriver."""

import importlib
import io
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

PACKAGES = "chromium chromium-driver"
SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

AXE = """
    const done = arguments[0];
    axe.run(document, {iframes: false}).then(result => done(result.violations.map(
      found => `${found.id} (${found.impact}): ${found.nodes[0].html}`)));"""

SAVED_GIF = """
    const [done, keep] = [arguments[0], URL.createObjectURL];
    URL.createObjectURL = (blob) => {
      if (blob.type === 'image/gif') blob.arrayBuffer().then(b => done([...new Uint8Array(b)]));
      return keep(blob);
    };
    document.getElementById('gif').click();"""


class Browser:
    """What tests ask of a browser."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def look(self, width: int = 1280, height: int = 860, *, dark: bool = False) -> None:
        """Take the size of a window (a phone's below 600 pixels) and a colour scheme."""
        phone = width < 600
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def open(self, address: str, shown: str = "true") -> None:
        """Load a page anew, and wait until the JavaScript condition ``shown`` holds."""
        self.driver.get("about:blank")
        self.driver.get(address)
        self.wait(shown)

    def run(self, script: str, *arguments: object) -> Any:
        """The value of a JavaScript expression; ``arguments[0]`` is the first argument."""
        return self.driver.execute_script(f"return {script}", *arguments)

    def wait(self, condition: str, seconds: float = 120) -> None:
        """Wait until a JavaScript condition holds."""
        script = f"""
            const [done, began] = [arguments[0], performance.now()];
            const look = () => {{
              let held = false;
              try {{ held = {condition}; }} catch {{ }}
              if (held || performance.now() - began > 10_000) done(!!held);
              else setTimeout(look, 20);
            }};
            look();"""
        # Each call is short, because Selenium gives up a command after 120 s.
        until = time.monotonic() + seconds
        while not self.driver.execute_async_script(script):
            assert time.monotonic() < until, f"in vain: {condition}"

    def press(self, *keys: str) -> None:
        """Press keys, by the names that JavaScript gives them, one after the other."""
        for key in keys:
            event = {"type": "keyDown", "key": key}
            if len(key) == 1:
                event["text"] = key
            self.driver.execute_cdp_cmd("Input.dispatchKeyEvent", event)
            self.driver.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": "keyUp", "key": key})

    def enter(self, selector: str, value: object) -> None:
        """Give a field or a choice a value."""
        script = """(field => { field.value = arguments[1]; for (const kind of ['input', 'change'])
            field.dispatchEvent(new Event(kind, {bubbles: true})); })
            (document.querySelector(arguments[0]))"""
        self.run(script, selector, value)

    def text(self, selector: str) -> str:
        """The text of an element, as it is seen where that makes a difference."""
        script = (
            "(found => found.innerText ?? found.textContent)(document.querySelector(arguments[0]))"
        )
        return str(self.run(script, selector))

    def each(self, selector: str, value: str) -> list[Any]:
        """The value of a JavaScript expression in ``part`` for every element."""
        script = f"[...document.querySelectorAll(arguments[0])].map(part => {value})"
        return list(self.run(script, selector))

    def box(self, selector: str) -> dict[str, float]:
        """The place of an element in the window."""
        return dict(
            self.run("document.querySelector(arguments[0]).getBoundingClientRect()", selector)
        )

    def turn(self) -> int:
        """The turn that the page of a game shows."""
        return int(self.text("#turn").split("/")[0])

    def violations(self) -> list[str]:
        """What axe finds wrong with the page, less what is in its frames."""
        package = importlib.import_module("axe_core_python").__file__ or ""
        self.driver.execute_script(Path(package).with_name("axe.min.js").read_text())
        found: list[str] = self.driver.execute_async_script(AXE)
        return found

    def saved_gif(self) -> Image.Image:
        """The picture that the page's button saves; its colors are those of the style sheet."""
        self.driver.set_script_timeout(100)
        picture = Image.open(io.BytesIO(bytes(self.driver.execute_async_script(SAVED_GIF))))
        assert len(set(picture.convert("RGB").get_flattened_data())) > 20
        return picture

    def complaints(self) -> list[str]:
        """What the browser's console has reported since the last look."""
        return [entry["message"] for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One Chromium for all tests; where there is none they are skipped."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip(f"needs a browser; install Debian's packages {PACKAGES}")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    profile: Path = tmp_path_factory.mktemp("chromium")
    for switch in (*SWITCHES, f"--user-data-dir={profile}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=Service(driver))
    yield Browser(chrome)
    chrome.quit()


@pytest.fixture
def quiet(browser: Browser) -> Iterator[Browser]:
    """The browser in a usual window; its console must stay empty."""
    browser.look()
    browser.complaints()
    yield browser
    found = browser.complaints()
    assert found == [], found
    browser.driver.get("about:blank")
