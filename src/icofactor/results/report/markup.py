"""HTML whose text cannot become markup, and numbers as a reader expects them."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence

# HTML elements without content, which have no closing tag.
_EMPTY = frozenset({"img", "input", "meta", "rect"})


class Markup(str):
    """Text that is HTML already; every other text is escaped when it enters an element."""

    __slots__ = ()


# What a panel puts where it has nothing to say.
NOTHING = Markup("")


def element(tag: str, *children: str, **attributes: str | bool | None) -> Markup:
    """Return an HTML element; `class_` sets the class, an underscore in a name becomes a hyphen.

    Examples
    --------
    >>> print(element("p", "a < b", class_="about"))
    <p class="about">a &lt; b</p>
    """
    words = [tag]
    for name, value in attributes.items():
        name = name.rstrip("_").replace("_", "-")
        if value is True:
            words.append(name)
        elif value is not None and value is not False:
            words.append(f'{name}="{html.escape(value)}"')
    opening = f"<{' '.join(words)}>"
    if tag in _EMPTY:
        return Markup(opening)
    return Markup(f"{opening}{join(children)}</{tag}>")


def join(children: Iterable[str]) -> Markup:
    """Return pieces of HTML one after the other, plain text escaped."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else html.escape(child, quote=False)
            for child in children
        )
    )


def paragraph(*children: str, class_: str | None = None) -> Markup:
    """Return a paragraph."""
    return element("p", *children, class_=class_)


def bullets(lines: Iterable[str], class_: str | None = None) -> Markup:
    """Return a list of sentences; nothing for none."""
    items = [element("li", line) for line in lines]
    return element("ul", *items, class_=class_) if items else NOTHING


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    numeric: Iterable[int] = (),
    search: str | None = None,
) -> Markup:
    """Return a table in a box that scrolls; the page's script sorts it by a click on a head.

    Parameters
    ----------
    rows : cells; markup is a whole cell, other text is put into one.
    numeric : columns of numbers, which stand at the right.
    search : label of a field that searches the first column; None for a table without one.
    """
    numeric = set(numeric)
    classes = ["number" if column in numeric else None for column in range(len(heads))]
    head = [
        element("th", name, scope="col", class_=class_)
        for name, class_ in zip(heads, classes, strict=True)
    ]
    body = []
    for row in rows:
        cells = [
            # A panel may bring a cell with colours of its own.
            cell if isinstance(cell, Markup) else element("td", cell, class_=class_)
            for cell, class_ in zip(row, classes, strict=True)
        ]
        body.append(element("tr", *cells))
    return element(
        "div",
        element(
            "table",
            element("thead", element("tr", *head)),
            element("tbody", *body),
        ),
        class_="scroll",
        tabindex="0",
        role="group",
        aria_label=f"Table of {', '.join(filter(None, heads))}",
        data_search=search,
    )


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with so many significant digits and a real minus sign; n/a for NaN or None.

    Examples
    --------
    >>> number(-1234.5), number(0.00001234), number(float("nan"))
    ('−1230', '1.23e−5', 'n/a')
    """
    if value is None or not math.isfinite(value):
        return "n/a"
    rounded = float(f"{value:.{digits - 1}e}")
    size = abs(rounded)
    # Very large and very small numbers are easier to read as powers of ten.
    if size and (size >= 1e6 or size < 1e-4):
        mantissa, _, power = f"{rounded:.{digits - 1}e}".partition("e")
        text = f"{float(mantissa):g}e{int(power)}"
    else:
        text = f"{rounded:.10f}".rstrip("0").rstrip(".")
    return text.replace("-", "−")


def fixed(value: float | None, digits: int = 2) -> str:
    """Return a number with so many digits after the point; n/a for NaN or None."""
    if value is None or not math.isfinite(value):
        return "n/a"
    return f"{value:.{digits}f}".replace("-", "−")


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share as a percentage."""
    text = fixed(None if share is None else 100 * share, digits)
    return text if text == "n/a" else f"{text} %"


def probability(p: float | None) -> str:
    """Return a p value as it stands in a sentence."""
    if p is None or not math.isfinite(p):
        return "p n/a"
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
