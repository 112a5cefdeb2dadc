"""The pages of `aot explain --html` and `aot bench --html` in a headless Chromium: what a person would see.

Screenshots are left in ``$AOT_SCREENSHOTS`` if it is set.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from aot_registry.cli import main

MODEL = """
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a_norm_with_a_name_of_some_length = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.dropout(self.down(F.gelu(self.up(self.a_norm_with_a_name_of_some_length(x)))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(32) for _ in range(3)))
        self.last = nn.Linear(32, 1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.last(torch._dynamo.graph_break() or self.blocks(x))


def build():
    return Net(), [(torch.randn(16, 32), torch.randn(16, 1)) for _ in range(4)], F.mse_loss
"""
WIDTHS = (360, 1280)
SCHEMES = ("light", "dark")
CAPTURE = '{"capture": "simulated"}'

# Elements that stick out of the page, but for those in a part that scrolls by itself.
STICKING_OUT = """
[...document.querySelectorAll("body *")]
  .filter(each => !each.closest(".scroll") && each.getBoundingClientRect().right > innerWidth + 0.5)
  .map(each => each.outerHTML.slice(0, 120))
"""

# Texts of one chart that lie on each other.
OVERLAPPING = """
[...document.querySelectorAll(".chart")].flatMap(chart => {
  const texts = [...chart.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
  return texts.flatMap(([words, a], i) => texts.slice(i + 1)
    .filter(([, b]) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4)
    .map(([other]) => words + " / " + other));
})
"""

# Contrast of each text with what lies behind it, by WCAG; charts are covered by the palette's own test.
LOW_CONTRAST = """
(() => {
  const parse = colour => colour.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll("main *, footer *")]
    .filter(each => !each.closest("svg") && [...each.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
    .filter(each => {
      const [a, b] = [luminance(parse(getComputedStyle(each).color)), luminance(behind(each))];
      return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5;
    })
    .map(each => each.outerHTML.slice(0, 120));
})()
"""


@pytest.fixture(scope="module")
def browser():
    found = os.environ.get("AOT_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        # As root, as in most containers, Chromium has no sandbox to run in.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return each page as a file, by name."""
    folder = tmp_path_factory.mktemp("pages")
    reference = f"{folder / 'train.py'}:build"
    (folder / "train.py").write_text(MODEL)
    commands = {
        "recomputed": ["explain", reference, "--backend", "aot_mem_efficient"],
        "fused": ["explain", reference, "--backend", "nvprims_aten"],
        "captured": ["explain", reference, "--backend", "aot_cudagraphs"],
        "bench": [
            *["bench", reference, "--steps", "2", "--rounds", "2", "--no-progress"],
            *[
                "--backend",
                "aot_core_eager",
                "--backend",
                "aot_inductor_debug",
                "--backend",
                "aot_torchxla_trivial",
            ],
        ],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOT_CUDAGRAPHS_OPTIONS", CAPTURE)
        for name, arguments in commands.items():
            status = main([*arguments, "--html", str(folder / f"{name}.html")])
            assert status == int(name == "bench")  # one backend is not usable
    return {name: folder / f"{name}.html" for name in commands}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["recomputed", "fused", "captured", "bench"])
def test_a_page_is_whole_in_a_browser(browser: Browser, pages: dict[str, Path], name, scheme, width):
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    messages, requests = [], []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    address = pages[name].as_uri()
    page.goto(address)
    keep(page, name, scheme, width)
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(STICKING_OUT) == []
    assert page.evaluate(OVERLAPPING) == []
    assert page.evaluate(LOW_CONTRAST) == []
    assert messages == [] and requests == [address]
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, paper.removeprefix("rgb(").removesuffix(")").split(","))) < 3 * 128) == (
        scheme == "dark"
    )
    context.close()


def test_what_each_page_is_for_is_seen(browser: Browser, pages: dict[str, Path]):
    kinds = {
        "recomputed": [".area", ".recomputed", ".saved", ".turn"],
        "fused": [".area", ".fused", ".saved"],
        "captured": [".captured", ".saved"],
        "bench": [".curve[d]", ".bar", ".reference"],
    }
    page = browser.new_page()
    for name, selectors in kinds.items():
        page.goto(pages[name].as_uri())
        for selector in selectors:
            boxes = [found.bounding_box() for found in page.query_selector_all(selector)]
            assert any(box and (box["width"] > 0 or box["height"] > 0) for box in boxes), (name, selector)
    page.close()


def keep(page, name: str, scheme: str, width: int) -> None:
    folder = os.environ.get("AOT_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}-{scheme}-{width}.png", full_page=True)
