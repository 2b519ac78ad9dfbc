"""What every figure shares."""

from __future__ import annotations

from afedpg.experiments import plotting


def test_the_legend_names_what_any_panel_shows_once():
    """A method may lack in the first panel; a panel with a legend of its own speaks for itself."""
    figure, axes = plotting.panels(1, 3)
    for panel, labels in zip(axes[0], (["afedpg"], ["afedpg", "fedpg"], ["N = 2"]), strict=True):
        for label in labels:
            panel.plot([0, 1], [0, 1], label=label)
    axes[0][2].legend()
    plotting.legend_below(figure, 4)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["afedpg", "fedpg"]
