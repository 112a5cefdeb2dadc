"""Contrast of the style sheet's colours, by the formula of WCAG 2.2."""

import importlib.resources
import re

import pytest

CSS = importlib.resources.files("aot_registry.reports").joinpath("templates/style.css").read_text("utf-8")
LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    for block in re.findall(r":root \{(.*?)\}", CSS, re.S)
)


def luminance(colour):
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_contrast_of_known_pairs():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_the_dark_palette_has_every_colour():
    assert LIGHT.keys() == DARK.keys() and len(LIGHT) == 14


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["paper", "panel"])
def test_text_is_readable(palette, ground):
    for name in ("ink", "muted", "hue-2"):
        assert contrast(palette[name], palette[ground]) >= 4.5, name


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["panel", "track"])
def test_marks_stand_out(palette, ground):
    for number in range(1, 9):
        assert contrast(palette[f"hue-{number}"], palette[ground]) >= 3, number


def test_colours_are_named_in_the_palette_alone():
    rules = re.sub(r":root \{.*?\}", "", CSS, flags=re.S)
    assert re.findall(r"#[0-9a-fA-F]{3,8}\b|rgba?\(|hsla?\(", rules) == []
    assert set(re.findall(r"var\(--([\w-]+)\)", rules)) <= LIGHT.keys()
