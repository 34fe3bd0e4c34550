"""Formulas: terms of columns, and of known functions of columns.

formulaic reads a formula. Every factor that it reports must be a column, or a function of
`FUNCTIONS` of one. What formulaic computes later is written anew from these, so that no text of the
user is ever evaluated.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from icofactor.errors import ArgumentError, shown
from icofactor.io.tables import cell_text

if TYPE_CHECKING:
    from formulaic.parser.types import ASTNode, Term, Token
    from formulaic.parser.types import Factor as FormulaicFactor

# Formulas beyond these limits are mistakes, and some would keep formulaic busy for hours.
_MAX_CHARACTERS = 2000
_MAX_PRODUCTS = 10_000
_MAX_TERMS = 100
_MAX_POWER = 4

# Names of columns that are no identifiers are quoted, as in `batch no`.
_QUOTED = re.compile(r"`([^`]+)`")

# Degrees of freedom of a smooth term that states none.
SMOOTH_DF = 3
_MAX_DF = 20
_SMALLEST = {"df": 2, "degree": 1}


@dataclass(frozen=True)
class Function:
    """A function of formulas: what formulaic computes, and the options with their defaults."""

    code: str
    defaults: Mapping[str, int] = field(default_factory=dict)


FUNCTIONS = {
    "cr": Function("cr({}, df={df}, constraints='center')", {"df": SMOOTH_DF}),
    "bs": Function(
        "bs({}, df={df}, degree={degree}, extrapolation='extend')",
        {"df": 4, "degree": 3},
    ),
    "poly": Function("poly({}, degree={degree})", {"degree": 2}),
    "center": Function("center({})"),
    "scale": Function("scale({})"),
    "log": Function("log({})"),
    "sqrt": Function("sqrt({})"),
}
_FUNCTION_NAMES = ", ".join(["C", *FUNCTIONS])


@dataclass(frozen=True)
class Factor:
    """One column of the table, as a term uses it.

    Attributes
    ----------
    column : name in the table.
    label : as a reader writes it.
    code : how formulaic computes it, with {} for the column.
    is_category : whether the formula makes it a category, whatever it holds.
    base : the level that the others are compared with.
    """

    column: str
    label: str
    code: str = "{}"
    is_category: bool = False
    base: str | None = None


TermFactors = frozenset[Factor]
Smooth = str | Sequence[str] | Mapping[str, int] | None


def factors_of(terms: Iterable[TermFactors]) -> list[Factor]:
    """Return the factors of terms, each once, in their order."""
    factors = (factor for term in terms for factor in sorted_factors(term))
    return list(dict.fromkeys(factors))


def columns_of(terms: Iterable[TermFactors]) -> list[str]:
    """Return the columns of the table that terms use."""
    return list(dict.fromkeys(factor.column for factor in factors_of(terms)))


def sorted_factors(term: TermFactors) -> list[Factor]:
    """Return the factors of a term by their labels."""
    return sorted(term, key=lambda factor: factor.label)


def parse(formula: str) -> list[TermFactors]:
    """Return the terms of a formula, simple ones first, without the intercept of every model."""
    import formulaic

    text = formula if isinstance(formula, str) else ""
    try:
        # This only reads: nothing of the formula is computed here.
        tree = formulaic.parser.DefaultFormulaParser().get_ast(text[: _MAX_CHARACTERS + 1])
        if not 0 < len(text.strip()) <= _MAX_CHARACTERS or _n_products(tree) > _MAX_PRODUCTS:
            raise _unreadable(formula)
        parsed = formulaic.Formula(text)
    except Exception:  # of many kinds: formulaic reports few mistakes as its own errors
        raise _unreadable(formula) from None
    # A formula with a left-hand side, or with parts, has terms of other kinds.
    is_simple = isinstance(parsed, formulaic.formula.SimpleFormula)
    if not is_simple or not any(map(_is_intercept, parsed)):
        raise unusable("write only what follows ~, without |, 0 and - 1: the intercept stays")
    try:
        terms = [
            frozenset(map(_factor, term.factors)) for term in parsed if not _is_intercept(term)
        ]
    except (SyntaxError, RecursionError, MemoryError):
        raise _unreadable(formula) from None
    if not 0 < len(terms) <= _MAX_TERMS:
        raise _unreadable(formula)
    return sorted(terms, key=len)


def _n_products(node: ASTNode | Token) -> float:
    """Return how many terms formulaic makes of a formula before it drops repeated ones."""
    # Names and numbers have no arguments.
    arguments = getattr(node, "args", ())
    if not arguments:
        return 1
    counts = [_n_products(argument) for argument in arguments]
    symbol = node.operator.symbol
    if symbol in ("**", "^"):
        power = str(arguments[1])
        is_small = power in map(str, range(1, _MAX_POWER + 1))
        return counts[0] ** int(power) if is_small else math.inf
    if symbol in ("+", "-", "~"):
        return sum(counts)
    # An interaction has the products alone, other operators also the terms themselves.
    return math.prod(count if symbol == ":" else 1 + count for count in counts)


def _is_intercept(term: Term) -> bool:
    """Whether a term of formulaic is the 1 of the intercept."""
    return [(factor.expr, factor.eval_method.value) for factor in term.factors] == [
        ("1", "literal")
    ]


def _factor(factor: FormulaicFactor) -> Factor:
    """Return a factor of formulaic as a column, or a function of one."""
    # formulaic has not to compute anything: the text is the name, whatever it contains.
    if factor.eval_method.value == "lookup":
        return Factor(factor.expr, factor.expr)
    # Quoted names get a stand-in that Python can read.
    quoted: dict[str, str] = {}

    def stand_in(match: re.Match[str]) -> str:
        name = f"quoted{len(quoted)}_"
        quoted[name] = match[1]
        return name

    expression = _QUOTED.sub(stand_in, factor.expr)
    return _read(ast.parse(expression, mode="eval").body, quoted)


def _read(
    node: ast.expr,
    quoted: Mapping[str, str],
) -> Factor:
    """Return a column, or a function of one."""
    if isinstance(node, ast.Name):
        column = quoted.get(node.id, node.id)
        return Factor(column, column)
    name = ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name = node.func.id
    if not isinstance(node, ast.Call) or name not in (*FUNCTIONS, "C"):
        raise unusable(
            f"{shown(ast.unparse(node))} is neither a column nor a function of one; functions: "
            f"{_FUNCTION_NAMES}"
        )
    defaults = FUNCTIONS[name].defaults if name in FUNCTIONS else {"base": 0}
    options = _options(node, name, list(defaults), quoted)
    inner = _read(node.args[0], quoted)
    settings = "".join(f", {option}={value}" for option, value in options.items())
    label = f"{name}({inner.label}{settings})"
    # A category has no logarithm, and a logarithm no levels.
    if inner.is_category or (name == "C" and inner.label != inner.column):
        raise unusable(f"{name} cannot take {shown(inner.label)}: C takes a column, others numbers")
    if name == "C":
        base = str(options["base"]) if options else None
        return Factor(inner.column, label, is_category=True, base=base)
    code = FUNCTIONS[name].code.format(inner.code, **{**defaults, **options})
    return Factor(inner.column, label, code)


def _options(
    call: ast.Call,
    name: str,
    allowed: list[str],
    quoted: Mapping[str, str],
) -> dict[str, object]:
    """Return the options of a call by name: whole numbers, and the base of a category as text."""
    # Surplus and repeated options are missed here, and then counted below.
    arguments = dict(zip(allowed, call.args[1:], strict=False))
    arguments |= {str(keyword.arg): keyword.value for keyword in call.keywords}
    options: dict[str, object] = {}
    for option, node in arguments.items():
        # The base of a category may be written with or without quotation marks.
        value = getattr(node, "value", None)
        if isinstance(node, ast.Name):
            value = quoted.get(node.id, node.id)
        if option == "base" and isinstance(value, str | int | float):
            options[option] = cell_text(value)
        # True is a whole number to Python, and no degree to anybody.
        elif option in _SMALLEST and type(value) is int and _SMALLEST[option] <= value <= _MAX_DF:
            options[option] = value
    n_arguments = len(call.args) + len(call.keywords)
    if n_arguments != 1 + len(options) or not set(options) <= set(allowed):
        listed = ", ".join(allowed) or "none"
        raise unusable(
            f"{name} takes a column, and these options: {listed} (base is a level, df a whole "
            f"number from 2 to {_MAX_DF}, degree one from 1 to {_MAX_DF})"
        )
    return options


def smoothed(
    terms: list[TermFactors],
    smooth: Smooth,
) -> list[TermFactors]:
    """Return the terms with natural splines for the columns of `smooth`.

    Columns that no term has are added.
    """
    for column, df in _smooth_columns(smooth).items():
        plain = Factor(column, column)
        spline = Factor(column, f"s({column})", FUNCTIONS["cr"].code.format("{}", df=df))
        if not any(plain in term for term in terms):
            # A column to smooth need not be in the formula.
            terms = [frozenset([plain]), *terms]
        terms = [
            frozenset(spline if factor == plain else factor for factor in term) for term in terms
        ]
    return sorted(terms, key=len)


def _smooth_columns(smooth: Smooth) -> dict[str, int]:
    """Return the degrees of freedom of columns given as "age", ("age", "iq=4") or {"age": 4}."""
    if smooth is None:
        return {}
    if isinstance(smooth, Mapping):
        pairs = [(str(column), str(df)) for column, df in smooth.items()]
    else:
        texts = [smooth] if isinstance(smooth, str) else smooth
        splits = [str(text).partition("=") for text in texts]
        pairs = [
            (column.strip(), df.strip() if equals else str(SMOOTH_DF))
            for column, equals, df in splits
        ]
    degrees: dict[str, int] = {}
    for column, df in pairs:
        if not df.isdecimal() or not 2 <= int(df[:9]) <= _MAX_DF:
            raise ArgumentError(
                "smooth",
                f"must be columns, each with 2 to {_MAX_DF} degrees of freedom, such as 'age' or "
                f"'age=4'; found {shown(smooth)}",
            )
        degrees[column] = int(df)
    return degrees


def _unreadable(formula: str) -> ArgumentError:
    return unusable(
        f"{shown(formula)} cannot be read: join columns, and functions of columns "
        f"({_FUNCTION_NAMES}), by + : * or **, in at most {_MAX_TERMS} terms"
    )


def unusable(message: str) -> ArgumentError:
    """Return the error of a formula that cannot be used."""
    return ArgumentError("formula", message)
