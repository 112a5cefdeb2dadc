import pytest
from html_check import Page

from aot_registry.reports import svg


def test_what_is_put_in_is_escaped():
    drawn = svg.element("g", svg.text('<b>&"', 0.5, 3), svg.title("<i>"), data_name='"<&')
    page = Page(drawn)
    assert page.problems == []
    assert [tag for tag, _ in page.elements] == ["g", "text", "title"]
    assert page.elements[0][1] == {"data-name": '"<&'}
    assert page.texts["text"] == ['<b>&"'] and page.texts["title"] == ["<i>"]


@pytest.mark.parametrize(
    ("part", "words"), [(0, "0%"), (1, "100%"), (0.125, "12.5%"), (1 / 3, "33.3333%"), (1e-9, "0%")]
)
def test_percent(part, words):
    assert svg.percent(part) == words


def test_a_rectangle_lies_where_it_is_told_to():
    ((_, attributes),) = Page(svg.rectangle(0.25, 10, 0.5, 14, class_="bar")).elements
    assert attributes == {"class": "bar", "x": "25%", "y": "10", "width": "50%", "height": "14"}


def test_a_polyline_goes_up_where_values_do():
    drawn = svg.polyline([[(0, 0), (0.5, 1)], [(1, 0.25)]], class_="curve")
    ((_, attributes),) = Page(drawn).elements
    assert attributes["d"] == "M0 1000L500 0M1000 750L1000 750"
    assert attributes["vector-effect"] == "non-scaling-stroke"


def test_a_picture_has_words_for_those_who_do_not_see_it():
    ((_, attributes),) = Page(svg.picture(height=40, label='loss "a"')).elements
    assert (attributes["role"], attributes["aria-label"], attributes["width"]) == ("img", 'loss "a"', "100%")
