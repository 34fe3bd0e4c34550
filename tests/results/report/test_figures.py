from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.image import BboxImage
from sklearn.exceptions import NotFittedError

from helpers.hostile_fit import small_fit
from icofactor.errors import ArgumentError
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.results.colours import diverging
from icofactor.results.report import charts, surfaces
from icofactor.results.report.drawing import figure_bytes, new_figure, view_of
from icofactor.results.report.figures import plot_components
from icofactor.sphere.sites import Sites

pytestmark = pytest.mark.slow


def model(
    hemi: str = "left", on: Any = "vertices", mesh: str = "fsaverage5", k: int = 2, **more: Any
) -> Any:
    """Components that grow toward the front (+y), so that where it is shows in the picture."""
    sites = Sites.named(mesh, on=on, hemi=hemi)  # type: ignore[arg-type]
    front = np.clip(sites.coordinates[:, 1], 0, None)
    return SimpleNamespace(components_=np.tile(front, (k, 1)), sites_=sites, hemi_=hemi, **more)


def pixels(figure: Any) -> np.ndarray:
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(float)


def panel(figure: Any, number: int) -> np.ndarray:
    image = pixels(figure)
    box = pictures(figure)[number].get_window_extent()
    height = image.shape[0]
    return image[int(height - box.y1) : int(height - box.y0), int(box.x0) : int(box.x1)]


def pictures(figure: Any) -> list[Any]:
    """The pictures of hemispheres, row by row."""
    return [artist for artist in figure.get_children() if isinstance(artist, BboxImage)]


def titles(figure: Any) -> list[str]:
    """What stands above the first row of views."""
    top = pictures(figure)[0].get_window_extent().y1
    return [text.get_text() for text in figure.texts if text.get_window_extent().y0 >= top]


def coloured_to_the_left(image: np.ndarray) -> bool:
    colour = np.ptp(image, axis=2)
    half = image.shape[1] // 2
    return bool(colour[:, :half].sum() > 5 * colour[:, half:].sum())


def coloured_to_the_right(image: np.ndarray) -> bool:
    return coloured_to_the_left(image[:, ::-1])


def test_shapes_are_nilearns(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read from its files; where these are elsewhere one day, nilearn itself is asked."""
    read = lambda: [
        surfaces.embedded_depth("right"),
        *(surfaces.embedded_shape(n, "left") for n in surfaces._NILEARN),
    ]
    from_files = read()
    monkeypatch.setattr(surfaces, "_nilearn_file", lambda name: None)
    for one, other in zip(from_files, read(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_colours_of_signed_maps_do_not_jump() -> None:
    steps = np.abs(np.diff(diverging().astype(int), axis=0))
    assert steps.max() <= 5


def test_front_is_where_anatomists_expect_it() -> None:
    figure = plot_components(model("both", k=1))
    assert titles(figure) == ["left lateral", "left medial", "right medial", "right lateral"]
    assert coloured_to_the_left(panel(figure, 0))
    assert coloured_to_the_right(panel(figure, 1))
    assert coloured_to_the_left(panel(figure, 2))
    assert coloured_to_the_right(panel(figure, 3))


def test_lateral_shows_the_outside_of_each_hemisphere() -> None:
    for hemi, sign in (("left", -1), ("right", 1)):
        fitted = model(hemi, k=1)
        fitted.components_ = np.clip(sign * fitted.sites_.coordinates[:, :1].T, 0, None)
        figure = plot_components(fitted)
        assert np.ptp(panel(figure, 0), axis=2).sum() > 5 * np.ptp(panel(figure, 1), axis=2).sum()


def test_labels_stay_inside_and_clear_of_the_maps() -> None:
    figure = plot_components(model(k=11, mesh="fsaverage3"), shares=np.full(11, 0.123))
    figure.canvas.draw()
    labels = [text for text in figure.texts if text.get_text().startswith("Component ")]
    assert len(labels) == 11
    assert labels[10].get_text() == "Component 11\n12.3 % unique"
    for row, text in enumerate(labels):
        box = text.get_window_extent()
        assert box.x0 >= 0
        assert box.x1 <= pictures(figure)[2 * row].get_window_extent().x0
    bar = figure.axes[-1].get_tightbbox()
    assert bar.y0 >= 0
    assert bar.y1 <= pictures(figure)[-1].get_window_extent().y0


@pytest.mark.parametrize(
    "views", [["dorsal"], ["lateral", "medial"], ["lateral", "medial", "dorsal", "ventral"]]
)
def test_a_note_says_what_the_percentages_are(views: list[str]) -> None:
    figure = plot_components(model(mesh="fsaverage3"), views=views, shares=[0.1, 0.1])
    figure.canvas.draw()
    (note,) = [text for text in figure.texts if "between-subject variance" in text.get_text()]
    assert note.get_text().replace("\n", " ").endswith("its loadings add to those of all others")
    box, bar = note.get_window_extent(), figure.axes[-1].get_tightbbox()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width
    assert box.y0 >= 0
    assert box.y1 <= bar.y0
    assert bar.y1 <= pictures(figure)[-1].get_window_extent().y0
    assert not [
        t for t in plot_components(model(mesh="fsaverage3")).texts if "variance" in t.get_text()
    ]


def test_a_hemisphere_that_nobody_named_is_drawn_without_a_side() -> None:
    named = model("left", k=1)
    unnamed = model("left", k=1)
    unnamed.hemi_ = None
    figure = plot_components(unnamed)
    assert titles(figure) == ["lateral", "medial"]
    np.testing.assert_array_equal(panel(figure, 0), panel(plot_components(named), 0))


def test_a_fit_without_hemi_can_be_drawn() -> None:
    X = np.random.default_rng(0).random((6, 642)) + 1
    fitted = CorticalFactorization(2, n_starts=1, n_iter=20, tol=0, refinement=None).fit(X)
    assert fitted.hemi_ is None
    assert titles(plot_components(fitted, views=["dorsal"])) == ["dorsal"]


def test_a_model_that_is_not_fitted() -> None:
    with pytest.raises(
        NotFittedError, match="CorticalFactorization has no components to draw yet: call fit first"
    ):
        plot_components(CorticalFactorization())


def test_components_can_be_chosen_and_units_are_shown() -> None:
    figure = plot_components(
        model(k=5, mesh="fsaverage3"), components=[3, 1], views=["dorsal"], units="mm"
    )
    assert [text.get_text() for text in figure.texts] == [
        "Component 4",
        "Component 2",
        "left dorsal",
    ]
    assert figure.axes[-1].get_xlabel() == "Component (mm)"
    assert len(pictures(figure)) == 2


def test_masked_sites_are_grey() -> None:
    used = Sites.named("fsaverage5").coordinates[:, 1] < 0
    figure = plot_components(model(k=1, mask_=used))
    assert np.ptp(panel(figure, 0), axis=2).max() == 0
    assert np.ptp(panel(plot_components(model(k=1)), 0), axis=2).max() > 50


def test_faces_look_like_vertices() -> None:
    one, other = (panel(plot_components(model(on=on, k=1)), 0) for on in ("vertices", "faces"))
    assert np.abs(one - other).mean() < 2


@pytest.mark.parametrize("on", ["vertices", "faces"])
def test_other_meshes_are_spheres(on: str) -> None:
    fitted = model("both", on, "fsaverage4", k=1)
    fitted.sites_ = Sites.icosphere(4, on=on, hemi="both")  # type: ignore[arg-type]
    fitted.components_ = np.clip(fitted.sites_.coordinates[:, 1], 0, None)[None]
    figure = plot_components(fitted)
    shown = (panel(figure, 0) < 255).any(axis=2)
    rows, columns = np.nonzero(shown)
    across, down = np.ptp(columns) + 1, np.ptp(rows) + 1
    assert across == pytest.approx(down, abs=2)
    assert shown.sum() == pytest.approx(np.pi / 4 * across * down, rel=0.03)
    assert coloured_to_the_left(panel(figure, 0))


@pytest.mark.parametrize("mesh", ["fsaverage4", "fsaverage5"])
def test_no_view_is_cut_off(mesh: str) -> None:
    views = ["lateral", "medial", "dorsal", "ventral", "anterior", "posterior"]
    figure = plot_components(model(k=1, mesh=mesh), views=views)
    for number in range(len(views)):
        image = panel(figure, number)
        border = np.concatenate([image[1], image[-2], image[:, 1], image[:, -2]])
        assert (border == 255).all()
        assert (image < 255).any()


def test_signs_get_a_symmetric_scale() -> None:
    fitted = model(k=1, mesh="fsaverage4")
    fitted.components_ = fitted.sites_.coordinates[:, 1:2].T.copy()
    low, high = plot_components(fitted).axes[-1].get_xlim()
    assert low == -high < 0


def test_each_component_on_its_own_scale() -> None:
    fitted = model(k=2, mesh="fsaverage4")
    fitted.components_ = fitted.components_ * np.array([[1.0], [1e-6]])
    shared, each = plot_components(fitted), plot_components(fitted, scale="each")
    assert np.ptp(panel(shared, 2), axis=2).max() == 0
    first, second = (pictures(each)[number].get_array() for number in (0, 2))
    np.testing.assert_array_equal(second, first)
    assert np.ptp(panel(each, 2), axis=2).max() > 50
    assert each.axes[-1].get_xlim()[1] == 1


def test_pyplot_is_not_touched() -> None:
    before = "matplotlib.pyplot" in sys.modules and sys.modules["matplotlib.pyplot"].get_fignums()
    plot_components(model(k=1, mesh="fsaverage3"))
    after = "matplotlib.pyplot" in sys.modules and sys.modules["matplotlib.pyplot"].get_fignums()
    assert before == after


@pytest.mark.parametrize(
    "arguments",
    [
        {"surface": "flat"},
        {"surface": "very inflated"},
        {"components": [2]},
        {"components": []},
        {"views": ["top"]},
        {"views": "latrl"},
        {"scale": "log"},
        {"names": ["one"]},
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError) as raised:
        plot_components(model(mesh="fsaverage3"), **arguments)
    assert [raised.value.argument] == list(arguments)


def test_models_that_cannot_be_drawn() -> None:
    fitted = model(mesh="fsaverage3")
    fitted.components_ = fitted.components_[:, :-1]
    with pytest.raises(ArgumentError) as raised:
        plot_components(fitted)
    assert raised.value.argument == "components_"
    fitted = model(mesh="fsaverage3")
    fitted.sites_ = fitted.sites_.subset(np.arange(100))
    fitted.components_ = fitted.components_[:, :100]
    with pytest.raises(ArgumentError) as raised:
        plot_components(fitted)
    assert raised.value.argument == "sites"


def test_text_stays_inside_charts() -> None:
    """Their places are computed, not searched."""
    d = small_fit(Sites.named("fsaverage3"), "left", k=3, n_starts=3)[1]
    for scale in (1e-9, 1.0, 123456789.0):
        c = replace(
            d.convergence,
            objective=scale * d.convergence.objective,
            band=scale * d.convergence.band,
        )
        other = replace(d, convergence=c, residual=1e3 * d.residual)
        bars = [charts.Bars("share", {"one": scale * d.unique, "other": scale * d.unique}, 1.0)]
        for figure in (
            charts.draw_convergence(other),
            charts.draw_bars(bars),
            charts.draw_similarity(other),
            charts.draw_subjects(other, "mm"),
            charts.draw_loadings(other, signed=True),
        ):
            figure.canvas.draw()
            box = figure.get_tightbbox()
            width, height = figure.get_size_inches()
            assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height


@pytest.mark.parametrize("n", [400, 401])
def test_dots_of_many_people_are_one_picture(n: int) -> None:
    d = small_fit(Sites.named("fsaverage3"), "left")[1]
    shares = np.linspace(0, 1, n)
    unusual = replace(d.unusual, subject=np.empty(0, dtype=int))
    names = tuple(map(str, range(n)))
    many = replace(d, subjects=names, residual=shares, subject_explained=shares, unusual=unusual)
    svg = figure_bytes(charts.draw_subjects(many, ""), "svg")
    assert (b"<image" in svg) == (n > 400)


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_equal_figures_are_equal_files(kind: str) -> None:
    """Journals refuse Type 3 fonts; text of SVG files stays text."""
    figure = new_figure(2, 1)
    figure.text(0.1, 0.1, "λ ≤ 3 × 10⁻²", weight="bold")
    first = figure_bytes(figure, kind, "A title")
    assert first == figure_bytes(figure, kind, "A title")
    assert b"/Type3" not in first
    assert ("λ ≤ 3".encode() in first) == (kind == "svg")


def test_a_view_shows_the_triangle_in_front() -> None:
    """Two parallel triangles; the one nearer to the viewer covers the other where they overlap."""
    vertices = np.array([[-1.0, 0, 0], [-1, 4, 0], [-1, 0, 4], [0, 0, 0], [0, 8, 0], [0, 0, 8]])
    # Counterclockwise as seen from −x, where the viewer of a left hemisphere stands.
    triangles = np.array([[0, 2, 1], [3, 5, 4]])
    half = surfaces.Hemisphere(
        "left", np.arange(6), triangles, {"flat": vertices}, np.zeros(6), vertices
    )
    view = view_of(half, "flat", "lateral")
    np.testing.assert_allclose(view.weights.sum(axis=1), 1)
    front = view.corners.max(axis=1) <= 2
    assert front.mean() == pytest.approx(1 / 4, abs=0.02)
    place = np.einsum("ij,ijk->ik", view.weights, vertices[view.corners])
    # No pixel shows the far triangle where the near one is.
    assert not (place[~front, 1:].sum(axis=1) < 3.9).any()
