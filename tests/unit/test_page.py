"""Figures are legible on both pages and for readers who do not see them."""

import re

import matplotlib.pyplot as plt
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from macgpu import page
from macgpu.machine import RUN_MIME
from tests.conftest import ROOT


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2.1 defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("background", page.BACKGROUNDS.values())
@pytest.mark.parametrize("colour", page.PALETTE)
def test_every_line_colour_stands_out_on_both_pages(colour, background):
    assert contrast(colour, background) >= 3, "WCAG 2.1 asks 3 to 1 of graphical objects"


def test_the_style_sheet_has_the_dark_page_that_the_palette_was_tested_on():
    style = (ROOT / "book" / "_static" / "book.css").read_text()
    assert f"--pst-color-background: {page.BACKGROUNDS['dark']}" in style


def draw(alt="A line that rises.", device=None, caption=None) -> str:
    page.use_style()
    figure, axis = plt.subplots()
    axis.plot([0, 1], [0, 1])
    axis.set(xlabel="step", ylabel="loss")
    return page.figure_html(figure, alt, device, caption)


def test_a_figure_takes_the_colour_of_the_text_around_it():
    html = draw()
    assert "currentColor" in html
    assert page.INK not in html
    assert not re.search(r"#(000000|ffffff)\b", html), "no fixed black or white"


def test_a_figure_speaks_for_itself():
    html = draw(alt='A line named "loss" that rises.', device=torch.device("cpu"))
    assert 'role="img" aria-label="A line named &quot;loss&quot; that rises."' in html
    assert "<figcaption>Measured on cpu" in html
    assert re.search(r"\d{4}-\d{2}-\d{2}\.</figcaption>", html)


def test_a_figure_of_a_record_carries_the_records_machine_and_not_this_one():
    html = draw(device=torch.device("cpu"), caption="Measured on <another> machine, 2026-01-02.")
    captions = re.findall("<figcaption>(.*?)</figcaption>", html)
    assert captions == ["Measured on &lt;another&gt; machine, 2026-01-02."]


def test_a_figure_without_alternative_text_is_refused():
    with pytest.raises(ValueError, match="alternative text"):
        draw(alt=" ")


def test_two_figures_of_a_page_share_no_reference():
    def referenced(html):
        return set(re.findall(r"url\(#([^)]+)\)", html))

    one, two = referenced(draw("One.")), referenced(draw("Two."))
    assert one and two and not one & two


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([1.7, 9], ["2", "3", "4", "5", "6", "7", "8", "9"]),
        ([2.1, 2.9], [f"{tenths / 10:g}" for tenths in range(21, 30)]),
        ([0.6, 21], ["1", "2", "5", "10", "20"]),
        ([0.06, 2000], ["0.1", "1", "10", "100", "1,000"]),
    ],
)
def test_a_logarithmic_axis_has_more_than_one_label_however_short_it_is(values, labels):
    figure, axis = plt.subplots()
    axis.semilogy([0, 1], values)
    page.log_ticks(axis.yaxis)
    figure.canvas.draw()
    low, high = axis.get_ylim()
    ticks = zip(axis.get_yticks(), axis.get_yticklabels(), strict=True)
    assert [label.get_text() for at, label in ticks if low <= at <= high] == labels
    plt.close(figure)


def test_a_figures_style_does_not_reach_the_page():
    assert "*{" not in draw()


def test_the_line_that_says_where_a_chapter_ran_carries_the_run():
    InteractiveShell.instance()
    with capture_output() as captured:
        page.executed_on(torch.device("cpu"))
    bundle = captured.outputs[0].data
    run = bundle[RUN_MIME]
    assert run["device"] == "cpu"
    assert run["torch"] == torch.__version__
    assert '<p class="executed-on">Executed on <strong>cpu</strong>' in bundle["text/html"]
    assert run["machine"] in bundle["text/plain"]
