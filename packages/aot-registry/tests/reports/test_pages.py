"""The pages: HTML that stands alone, with everything in it, escaped."""

import builtins
import dataclasses
import subprocess
import sys

import pytest
from html_check import Page
from pages import BENCH, EAGER, EVIL, EXPLANATION, GRAPH, REPORTS, SOURCE

from aot_registry.reports import bench_page, explain_page
from aot_registry.reports.errors import MissingHtmlExtraError


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def explained(source):
    return Page(explain_page(EXPLANATION, REPORTS, sources=[source]))


@pytest.fixture
def compared():
    return Page(bench_page([BENCH]))


def test_pages_stand_alone_and_are_well_formed(explained, compared):
    assert explained.problems == [] and compared.problems == []
    for page in (explained, compared):
        policy = [attributes.get("content") for tag, attributes in page.elements if tag == "meta"]
        assert "default-src 'none'; style-src 'unsafe-inline'" in policy
        assert "width=device-width, initial-scale=1" in policy
        assert [attributes for tag, attributes in page.elements if tag == "html"] == [{"lang": "en"}]


def test_pages_work_without_a_script_and_in_both_colour_schemes():
    for text in (bench_page([BENCH]), explain_page(EXPLANATION)):
        assert "<script" not in text.lower()
        assert "@media (prefers-color-scheme: dark)" in text


def test_every_picture_has_words_and_every_table_a_caption_and_heads(explained, compared):
    for page in (explained, compared):
        charts = page.with_class("chart")
        assert charts and all(chart["role"] == "img" and chart["aria-label"] for chart in charts)
        tables = sum(tag == "table" for tag, _ in page.elements)
        assert tables == len(page.texts["caption"]) > 0
        assert all(text.strip() for text in page.texts["caption"])
        scopes = [attributes["scope"] for tag, attributes in page.elements if tag == "th"]
        assert {"col", "row"} == set(scopes)
        hidden = [a for tag, a in page.elements if tag == "svg" and "chart" not in (a.get("class") or "")]
        assert all(a.get("aria-hidden") or "viewbox" in a for a in hidden)


def test_losses_times_and_memory_are_there(compared):
    assert compared.texts["figcaption"] == [
        "Loss of each step",
        "Distance from eager's loss, logarithmic",
        "Time of a step, as a multiple of eager's",
        "Peak memory of a step, as a multiple of eager's",
        "Compile time",
    ]
    bars = [bar["width"] for bar in compared.with_class("bar")]
    assert bars == ["100%", "50%", "100%", "50%", "0%", "100%"]  # of eager and drifts: time, memory, compile
    assert {line["x1"] for line in compared.with_class("reference")} == {"100%"}
    whole = [(line["x1"], line["x2"]) for line in compared.with_class("range")[::3]]
    assert whole == [("100%", "100%"), ("40%", "80%")]
    curves = [curve["class"] for curve in compared.with_class("curve") if "d" in curve]
    assert curves == ["curve hue-1 wide", "curve hue-2", "curve hue-3", "curve hue-2"]
    assert EVIL in "".join(compared.texts["pre"]) and EVIL in compared.texts["h2"]
    cells = compared.texts["td"]
    assert {"0.50x", "2.5e-01*", "1.2500", "nan"} <= set(cells)


def test_a_comparison_of_nothing_but_eager():
    alone = dataclasses.replace(BENCH, contenders=(EAGER,))
    page = Page(bench_page([alone, alone]))
    assert page.problems == []
    assert len(page.texts["h2"]) == 2
    assert "Distance from eager's loss, logarithmic" not in page.texts["figcaption"]


def test_every_decision_is_there_with_its_source_line(explained):
    text = explained.texts["ol"]
    decisions = text[1]
    for decision in GRAPH.decisions:
        assert decision.code in decisions and decision.subject in decisions and decision.detail in decisions
    assert [" ".join(found.split()) for found in explained.texts["span"] if ".py" in found] == [
        "net.py:1 import torch",
        "net.py:3 b = a < 3",
        "elsewhere.py:7",
    ]
    assert EVIL in decisions, "escaped, and shown as it is"


def test_the_step_is_drawn(explained):
    for kind in ("forward", "backward", "recomputed", "saved", "fused", "captured", "area", "peak"):
        assert explained.with_class(kind), kind
    captions = [" ".join(text.split()) for text in explained.texts["caption"]]
    assert captions[:5] == [
        "Operations of each stage",
        "Memory of the step",
        "Saved for the backward",
        "Computed again in the backward",
        "Fused regions and captured islands",
    ]
    assert "Peak 2.0 MiB, at b" in "".join(explained.texts["p"])


def test_compile_stages_are_drawn_where_they_lie(explained):
    whole, joint = explained.with_class("bar")
    assert (whole["x"], whole["width"], joint["x"], joint["width"]) == ("0%", "100%", "25%", "50%")


def test_a_graph_that_failed_says_so(explained):
    assert any(EVIL in text for text in explained.texts["p"])
    assert explained.with_class("failed")


def test_an_analysis_that_failed_says_so():
    graph = dataclasses.replace(GRAPH, analyses={"memory": {"error": f"ValueError: {EVIL}"}})
    page = Page(explain_page(dataclasses.replace(EXPLANATION, graphs=(graph,))))
    assert page.problems == [] and page.with_class("area") == []
    assert any("could not be told" in text and EVIL in text for text in page.texts["p"])


def test_two_files_of_one_name_are_not_quoted(source, tmp_path):
    (tmp_path / "other").mkdir()
    twin = tmp_path / "other" / "net.py"
    twin.write_text("something else\n" * 5)
    page = Page(explain_page(EXPLANATION, sources=[source, twin]))
    assert not any("torch" in text or "something" in text for text in page.texts["span"])


def test_without_jinja_the_error_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.partition(".")[0] == "jinja2":
            raise ModuleNotFoundError("No module named 'jinja2'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingHtmlExtraError) as caught:
        bench_page([BENCH])
    assert "pip install 'aot-registry[html]'" in str(caught.value)


def test_the_package_imports_without_torch_and_jinja():
    program = """
import sys
sys.modules["jinja2"] = None
import aot_registry.reports.files, aot_registry.reports.chrome_trace, aot_registry.explaining.command
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
