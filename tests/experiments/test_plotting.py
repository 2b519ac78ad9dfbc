"""What every figure shares."""

from __future__ import annotations

from pathlib import Path

from afedpg import plotting


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


def test_a_short_logarithmic_axis_has_a_scale_all_the_same():
    """A curve from 0.4 down to 0.02 crosses one power of ten: its label alone would say nothing about the rest."""
    figure, axes = plotting.panels(1, 2)
    for panel, ends in zip(axes[0], ([0.4, 0.02], [4.0, 0.02]), strict=True):
        panel.plot([0, 1], ends)
        panel.set(yscale="log")
        plotting.readable_logarithms(panel)
    figure.draw_without_rendering()
    short, long = ([label.get_text() for label in panel.get_yticklabels(minor=True)] for panel in axes[0])
    assert {"0.02", "0.05", "0.2"} <= set(short)
    assert not any(long)


def test_a_figure_is_written_as_a_picture_as_curves_and_as_a_page_with_the_same_bytes_each_time(tmp_path: Path) -> None:
    def draw() -> plotting.Figure:
        figure, axes = plotting.panels(1, 1)
        axes[0][0].plot([0, 1], [0, 1])
        return figure

    for name in ("one", "two"):
        plotting.save(draw, tmp_path / name)
    starts = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    for ending, start in starts.items():
        content = (tmp_path / f"one{ending}").read_bytes()
        assert content.startswith(start)
        assert content == (tmp_path / f"two{ending}").read_bytes()
