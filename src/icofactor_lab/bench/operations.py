"""Floating-point operations of one update, term by term, as the compiled kernels make them with a dense K."""

from __future__ import annotations

from icofactor.factorization.methods import method_named


def operations_of_update(
    method: str, rules: str, n_k: int, n_d: int, n_s: int, diagonal: bool = False
) -> dict[str, int]:
    """Operations of one update by term; their sum is the count that rates are computed from.

    A product of m × k by k × n counts 2mkn. CCᵀ and G = BᵀKB are symmetric and only one triangle is computed, so they
    count n_d(n_d + 1) per row instead of 2n_d². K B is made once, for G of the new B and for its next update.
    Elementwise work counts only where it is the update itself (four operations an element of the quotient, five of
    eq. 8); momentum, logarithms, balance and restarts are the price of the method and are not counted as work done, so
    that a method's rate never rises by doing more than its update.

    Parameters
    ----------
    method, rules : as in `solve`
    n_k, n_d, n_s : columns of the design, components, subjects
    diagonal : whether K is diagonal, when K B costs n_k n_d
    """
    scheme = method_named(method).scheme
    times_K = n_k * n_d if diagonal else 2 * n_k * n_k * n_d
    terms = {
        "C L": 2 * n_s * n_k * n_d,
        "BᵀLᵀ": 2 * n_s * n_k * n_d,
        "CCᵀ": n_s * n_d * (n_d + 1),
        "K B": times_K,
        "G = BᵀKB": n_k * n_d * (n_d + 1),
        "(CCᵀ)(KB)ᵀ": 2 * n_k * n_d * n_d,
        "error (eq. 1)": 2 * n_k * n_d + 2 * n_d * n_d,
    }
    if scheme.projective:  # no update of C, which is BᵀLᵀ itself
        return terms | {"(BᵀKB)(MB)ᵀ": 2 * n_k * n_d * n_d, "eq. 8": 5 * n_k * n_d}
    terms["G C"] = 2 * n_s * n_d * n_d
    if scheme.name.startswith("CD-"):
        from icofactor.factorization.schemes.coordinate import SWEEPS

        # each of the n_d steps of a sweep spreads one row's change over the residual: a rank-one update
        sweep_B = 2 * n_k * n_d * n_d + times_K
        return terms | {"sweeps over B": SWEEPS * sweep_B, "sweeps over C": SWEEPS * 2 * n_s * n_d * n_d}
    terms["quotient"] = 4 * (n_k + n_s) * n_d
    if scheme.signed and rules == "default":
        terms["eigenvalue bounds"] = 2 * 3 * 2 * n_d**3  # three squarings each for CCᵀ and G
    return terms
