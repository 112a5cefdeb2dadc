"""What a page must be, checked with the standard library's parser: well-formed, and in need of nothing else."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input"}
ADDRESSES = {"src", "href", "xlink:href", "srcset", "action", "data", "poster"}


class Page(HTMLParser):
    """A parsed page.

    Attributes:
        problems: What is not well-formed, or would be fetched or run.
        elements: Each element's name and attributes, in order.
        texts: The text in each element of a name: ``{"title": [...]}``.
    """

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.problems: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.problems += [f"<{tag}> is not closed" for tag in self._open]

    def handle_starttag(self, tag, attrs):
        if len(dict(attrs)) != len(attrs):
            self.problems.append(f"<{tag}> has an attribute twice: {attrs}")
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "link", "iframe", "object", "embed", "img"):
            self.problems.append(f"<{tag}> in the page")
        for name, value in attrs:
            if name in ADDRESSES or name.startswith("on") or "url(" in (value or ""):
                self.problems.append(f"<{tag} {name}={value!r}>")
        if tag not in VOID:
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        if not self._open or self._open[-1] != tag:
            self.problems.append(f"</{tag}> closes {self._open[-1:]}")
        else:
            self._open.pop()

    def handle_data(self, data):
        for tag in set(self._open):
            self.texts[tag][-1] += data
        if self._open[-1:] == ["style"] and ("url(" in data or "@import" in data):
            self.problems.append("the style sheet fetches something")

    def with_class(self, name: str) -> list[dict[str, str | None]]:
        return [
            attributes for _, attributes in self.elements if name in (attributes.get("class") or "").split()
        ]
