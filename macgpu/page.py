"""What a chapter shows beyond its own output: where it ran, and figures for both themes."""

from __future__ import annotations

import html
import io
import math
from datetime import datetime, timezone

import matplotlib.pyplot as plt
import seaborn as sns
import torch
from IPython.display import HTML, display
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from macgpu import device as devices
from macgpu.machine import RUN_MIME, read_machine

PALETTE = ("#2f7fc1", "#d06a1b", "#2a8f5d", "#a55fc4", "#c2504f", "#7a7f87")
"""Line colours with a contrast of at least 3 to 1 on the light and on the dark page."""

BACKGROUNDS = {"light": "#ffffff", "dark": "#14181e"}
"""The two pages that a figure must be legible on; the site's style sheet uses the same."""

# Stands for "the colour of the text around" until the figure is written, see `figure_html`.
INK = "#010203"


def executed_on(device: torch.device) -> None:
    """Show the line at the top of a chapter that says what it runs on, taken from the run."""
    machine = read_machine()
    run = {
        "device": device.type,
        "device_name": devices.describe(device),
        "machine": machine.describe(),
        "python": machine.python,
        "torch": torch.__version__,
        "date": today(),
    }
    name = "" if device.type == "cpu" else f" ({html.escape(run['device_name'])})"
    line = (
        f"Executed on <strong>{run['device']}</strong>{name} · "
        f"{html.escape(run['machine'])} · Python {run['python']} · torch {run['torch']} · "
        f"{run['date']}"
    )
    plain = html.unescape(line.replace("<strong>", "").replace("</strong>", ""))
    bundle = {
        "text/html": f'<p class="executed-on">{line}</p>',
        "text/plain": plain,
        RUN_MIME: run,
    }
    display(bundle, raw=True)


def today() -> str:
    """The date in UTC, ISO 8601, as the status page has it."""
    return datetime.now(timezone.utc).date().isoformat()


def measured_on(device: torch.device) -> str:
    """What stands below a figure of this run."""
    return f"Measured on {device.type}, {devices.describe(device)}, {today()}."


def use_style() -> None:
    """Set the look of all figures of a chapter: quiet axes in the colour of the text around."""
    sns.set_theme(
        context="notebook",
        style="ticks",
        palette=PALETTE,
        rc={
            "figure.figsize": (5.6, 3.4),
            "font.size": 12,
            "axes.labelsize": 12,
            "xtick.labelsize": 11,
            "ytick.labelsize": 11,
            "legend.fontsize": 11,
            "figure.constrained_layout.use": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.alpha": 0.18,
            "svg.fonttype": "none",
            "font.family": "sans-serif",
            "legend.frameon": False,
            **dict.fromkeys(
                (
                    "text.color",
                    "axes.labelcolor",
                    "axes.edgecolor",
                    "axes.titlecolor",
                    "xtick.color",
                    "ytick.color",
                    "xtick.labelcolor",
                    "ytick.labelcolor",
                    "grid.color",
                ),
                INK,
            ),
        },
    )


def log_ticks(axis: Axis) -> None:
    """Label a logarithmic axis that has been drawn on in plain numbers, a short one more densely.

    By itself Matplotlib labels powers of ten alone, of which a short axis may hold one.
    """
    low, high = axis.get_view_interval()
    decades = math.log10(high / low)
    subs = (1,) if decades > 3 else (1, 2, 5) if decades > 1 else range(1, 10)
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 10 else f"{value:g}")
    axis.set_minor_locator(NullLocator())


def show(
    figure: Figure, alt: str, device: torch.device | None = None, caption: str | None = None
) -> HTML:
    """Show a figure as part of the page: it takes the page's text colour, light or dark.

    Args:
        figure: drawn under :func:`use_style`; closed here.
        alt: what the figure shows, in a sentence, for readers who do not see it.
        device: what the numbers were measured on; named below the figure with the date.
        caption: stands there instead, where the numbers are not of this run: a record's own.

    Returns:
        what was displayed, to be glued on another page.
    """
    shown = HTML(figure_html(figure, alt, device, caption), metadata={"isolated": False})
    display(shown)
    return shown


def figure_html(
    figure: Figure, alt: str, device: torch.device | None = None, caption: str | None = None
) -> str:
    """The figure as an inline SVG with its alternative text, machine and date."""
    if not alt.strip():
        raise ValueError("a figure needs alternative text")
    buffer = io.StringIO()
    # Figures of one page must not share ids, so each has its own salt.
    with plt.rc_context({"svg.hashsalt": alt}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    width = figure.get_figwidth() * 96
    plt.close(figure)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    # Inside of a page this rule for every element would reach beyond the figure.
    svg = svg.replace("*{stroke-linejoin: round; stroke-linecap: butt}", "")
    opening, _, rest = svg.partition(">")
    view_box = opening[opening.index("viewBox=") :].split('"')[1]
    svg = (
        f'<svg role="img" aria-label="{html.escape(alt, quote=True)}" viewBox="{view_box}" '
        f'style="width:100%;max-width:{width:.0f}px;height:auto;stroke-linejoin:round" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink" xmlns="http://www.w3.org/2000/svg">{rest}'
    )
    if caption is None and device is not None:
        caption = measured_on(device)
    below = f"<figcaption>{html.escape(caption)}</figcaption>" if caption else ""
    return f'<figure class="book-figure">{svg}{below}</figure>'
