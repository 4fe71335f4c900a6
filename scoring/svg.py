"""Makes an SVG file of matplotlib into a piece of a page: nothing from outside, its own ids and colours."""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree

_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
# A style element would hold for the whole page.
_DROPPED = frozenset(("metadata", "clipPath", "title", "style"))
_FONT = re.compile(r"font-family:[^;]*;? ?")


def inline_svg(data: bytes, *, key: str, title: str, colours: Mapping[str, str]) -> str:
    """The drawing as an ``svg`` element with ``title`` as its name for those who do not see it.

    ``key`` starts every id; ``colours`` replaces colours of the drawing by others, such as CSS variables.
    """
    root = ElementTree.fromstring(data)
    used = {link[1:] for element in root.iter() if (link := element.get(_LINK))}
    _clean(root, key, used, colours)
    width, height = (_number(root.get(name)) for name in ("width", "height"))
    name = ElementTree.Element("title", {"id": f"{key}-title"})
    name.text = title
    root.insert(0, name)
    root.attrib = {
        "viewBox": root.get("viewBox", f"0 0 {width} {height}"),
        "width": f"{width * 4 / 3:.0f}",
        "height": f"{height * 4 / 3:.0f}",
        "role": "img",
        "aria-labelledby": f"{key}-title",
        "class": "plot",
    }
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


def _number(length: str | None) -> float:
    return float((length or "0").removesuffix("pt"))


def _clean(element: ElementTree.Element, key: str, used: set[str], colours: Mapping[str, str]) -> None:
    element.tag = element.tag.removeprefix(_SVG)
    for child in list(element):
        if child.tag.removeprefix(_SVG) in _DROPPED:
            element.remove(child)
        else:
            _clean(child, key, used, colours)
    own = element.attrib.pop("id", None)
    if own in used:
        element.set("id", f"{key}-{own}")
    link = element.attrib.pop(_LINK, None)
    if link is not None:
        element.set("href", f"#{key}-{link[1:]}")
    element.attrib.pop("clip-path", None)
    for name, value in element.attrib.items():
        element.set(name, _restyled(value, colours) if name in ("style", "fill", "stroke") else value)


def _restyled(style: str, colours: Mapping[str, str]) -> str:
    for colour, variable in colours.items():
        style = style.replace(colour, variable)
    return _FONT.sub("", style)
