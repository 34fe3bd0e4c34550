"""Formulas, read without evaluating anything.

A formula is read by this module: names of columns, `+`, `:`, `*`, `**2`, and the functions of
`FUNCTIONS`; anything else is refused. What formulaic encodes is written anew from what was read, so
no text of the user is ever evaluated.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

from icofactor.errors import ArgumentError, literal
from icofactor.io.tables import cell_text

FUNCTIONS: dict[str, dict[str, type]] = {
    "C": {"base": str},
    "cr": {"df": int},
    "bs": {"df": int, "degree": int},
    "poly": {"degree": int},
    "center": {},
    "scale": {},
    "log": {},
    "sqrt": {},
}
"""Function → its options. C: a category (base: the level that the others are compared with); cr:
natural cubic
spline; bs: B-spline; poly: orthogonal polynomial.
"""
SMOOTH_DF = 3
"""Degrees of freedom of a smooth term that states none."""
_MOST_CHARACTERS, _MOST_TERMS, _MOST_DF = 2000, 100, 20
_TOKEN = re.compile(
    r"\s+|(?P<quoted>`[^`]+`)|(?P<text>'[^'\\\n]*'|\"[^\"\\\n]*\")|(?P<name>[^\W\d]\w*)|(?P<number>\d+(\.\d*)?)"
    r"|(?P<operator>\*\*|[+:*(),=])"
)
# Python's precedence of these is the formula's: + below * below : below **
_OPERATORS = {"+": "|", "*": "&", ":": "@"}


@dataclass(frozen=True)
class Factor:
    """One column of the table, as a term uses it.

    Attributes
    ----------
    column : name in the table.
    label : as a reader writes it.
    code : how formulaic computes it, with {} for the column.
    category : whether it is one by the formula, whatever it holds.
    base : the level that the others are compared with.
    """

    column: str
    label: str
    code: str = "{}"
    category: bool = False
    base: str | None = None


TermFactors = frozenset[Factor]


def parse(formula: str) -> list[TermFactors]:
    """The terms of a formula, simple ones first; no intercept, which every model has."""
    if not isinstance(formula, str) or not formula.strip():
        raise unusable(f"The formula is empty or not text; found {literal(repr(formula))}")
    if len(formula) > _MOST_CHARACTERS:
        raise unusable(
            f"{len(formula)} characters are too many; at most {_MOST_CHARACTERS} are read"
        )
    text, names = _as_python(formula)
    try:
        terms = [term for term in _expand(ast.parse(text, mode="eval").body, names) if term]
    except ArgumentError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise unusable(
            f"{literal(repr(formula))} cannot be read: is a bracket or an operator missing?"
        ) from None
    if not terms:
        raise unusable(f"{literal(repr(formula))} has no term besides the intercept")
    return sorted(terms, key=len)


def smoothed(terms: list[TermFactors], smooth: Any) -> list[TermFactors]:
    """The terms with natural splines for the columns named in `smooth`, which are added where no
    term has them.
    """
    found = terms
    for column, df in _smooth_columns(smooth).items():
        spline = Factor(column, f"s({column})", _spline_code(df))
        swapped = [
            frozenset(spline if f == Factor(column, column) else f for f in term) for term in found
        ]
        found = (
            swapped if any(spline in term for term in swapped) else [frozenset([spline]), *swapped]
        )
    return sorted(found, key=len)


def _smooth_columns(smooth: Any) -> dict[str, int]:
    """ "age", ("age", "iq=4") or {"age": 4} → degrees of freedom of each."""
    if smooth is None:
        return {}
    if isinstance(smooth, Mapping):
        pairs = [(str(column), df) for column, df in smooth.items()]
    else:
        listed = [smooth] if isinstance(smooth, str) else list(smooth)
        parts = [str(one).partition("=") for one in listed]
        pairs = [(name.strip(), df.strip() if equals else SMOOTH_DF) for name, equals, df in parts]
    found = {}
    for column, df in pairs:
        if not str(df).isdecimal() or not 2 <= int(df) <= _MOST_DF:
            expected = (
                f"columns, each with 2 to {_MOST_DF} degrees of freedom, e.g. 'age' or 'age=4'"
            )
            raise ArgumentError("smooth", smooth, expected)
        found[column] = int(df)
    return found


def _spline_code(df: int) -> str:
    return f"cr({{}}, df={df}, constraints='center')"


def _as_python(formula: str) -> tuple[str, dict[str, str]]:
    """The formula in Python's operators, and its names of columns by what stands for them."""
    tokens: list[str] = []
    names: dict[str, str] = {}
    place = 1 if (start := formula.lstrip()).startswith("~") else 0
    formula = start
    while place < len(formula):
        match = _TOKEN.match(formula, place)
        if match is None:
            character = formula[place]
            hint = {
                "~": "the loadings are on the left: write only what follows ~",
                "-": "terms cannot be removed, and the intercept stays",
                ".": "columns are named one by one",
            }.get(character, "use columns, +, :, *, **, and " + ", ".join(FUNCTIONS))
            raise unusable(f"{literal(repr(character))} cannot be used in a formula: {hint}")
        place = match.end()
        rest = formula[place:].lstrip()
        token = match.group()
        if match["quoted"] or (match["name"] and not rest.startswith(("(", "="))):
            key = f"column{len(names)}_"
            names[key] = token.strip("`")
            token = key
        tokens.append(_OPERATORS.get(token, token))
    return " ".join(token for token in tokens if token.strip()), names


def _expand(node: ast.expr, names: Mapping[str, str]) -> list[TermFactors]:
    """The terms that a part of the formula stands for, each once, in order; the empty one is the
    intercept.
    """
    if isinstance(node, ast.BinOp):
        left = _expand(node.left, names)
        if isinstance(node.op, ast.Pow):
            power = node.right.value if isinstance(node.right, ast.Constant) else None
            if type(power) is not int or not 1 <= power <= 4:
                raise unusable("after ** a formula has a number from 1 to 4")
            return reduce(_crossed, [left] * power)
        right = _expand(node.right, names)
        if isinstance(node.op, ast.BitOr):
            return _limited([*left, *right])
        if isinstance(node.op, ast.BitAnd):
            return _crossed(left, right)
        if isinstance(node.op, ast.MatMult):
            return _limited([a | b for a, b in product(left, right)])
    if isinstance(node, ast.Constant) and type(node.value) is int:
        if node.value == 1:
            return [frozenset()]
        raise unusable(f"{node.value} is not a term; the intercept stays")
    if isinstance(node, ast.Name | ast.Call):
        return [frozenset([_factor(node, names)])]
    raise unusable("a formula joins columns and functions of them by +, :, * and **")


def _crossed(left: list[TermFactors], right: list[TermFactors]) -> list[TermFactors]:
    return _limited([*left, *right, *(a | b for a, b in product(left, right))])


def _limited(terms: Sequence[TermFactors]) -> list[TermFactors]:
    once = list(dict.fromkeys(terms))
    if len(once) > _MOST_TERMS:
        raise unusable(f"the formula has more than {_MOST_TERMS} terms")
    return once


def _factor(node: ast.expr, names: Mapping[str, str]) -> Factor:
    if isinstance(node, ast.Name) and node.id in names:
        return Factor(names[node.id], names[node.id])
    if (
        not isinstance(node, ast.Call)
        or not isinstance(node.func, ast.Name)
        or node.func.id not in FUNCTIONS
    ):
        name = literal(getattr(getattr(node, "func", node), "id", "this"))
        raise unusable(f"{name} is not a function of formulas, which are {', '.join(FUNCTIONS)}")
    function = node.func.id
    known = FUNCTIONS[function]
    if not node.args or len(node.args) > 2 or (len(node.args) == 2 and not known):
        raise unusable(f"{function} takes a column{' and options' if known else ''}")
    inner = _factor(node.args[0], names)
    pairs = [
        *zip(known, node.args[1:], strict=False),
        *((word.arg, word.value) for word in node.keywords),
    ]
    options: dict[str, Any] = {}
    for option, value in pairs:
        # the base of a category may be written with or without quotation marks
        given = (
            names.get(value.id) if isinstance(value, ast.Name) else getattr(value, "value", None)
        )
        if option is None or option not in known or option in options:
            raise unusable(
                f"{function} has no option {literal(option)}; its options: {', '.join(known) or 'none'}"
            )
        if known[option] is str:
            if not isinstance(given, str | int | float):
                raise unusable(f"{option} of {function} is a level, such as {option}=control")
            given = cell_text(given)
        elif type(given) is not int or not 1 <= given <= _MOST_DF:
            raise unusable(f"{option} of {function} is a whole number from 1 to {_MOST_DF}")
        options[option] = given
    shown = "".join(f", {option}={value}" for option, value in options.items())
    label = f"{function}({inner.label}{shown})"
    if function == "C":
        if inner != Factor(inner.column, inner.column):
            raise unusable(f"C takes an unchanged column, not {literal(inner.label)}")
        return Factor(
            inner.column, label if options else f"C({inner.label})", "{}", True, options.get("base")
        )
    if inner.category:
        raise unusable(f"{function} takes numbers, not the category {literal(inner.label)}")
    if function == "cr":
        code = _spline_code(max(2, options.get("df", SMOOTH_DF)))
    elif function == "bs":
        code = f"bs({{}}, df={options.get('df', 4)}, degree={options.get('degree', 3)}, extrapolation='extend')"
    elif function == "poly":
        code = f"poly({{}}, degree={options.get('degree', 2)})"
    else:
        code = f"{function}({{}})"
    return Factor(inner.column, label, code.format(inner.code))


def unusable(text: str) -> ArgumentError:
    """The formula cannot be used; the text says why."""
    return ArgumentError("formula", None, f"{{formula}}: {text}")
