"""Curves as an SVG of their own: for documents that take a picture and no script. The colours are those of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

import numpy as np

from hitl.annotations import Floats
from hitl.report.contents import Curve
from hitl.report.plots import COLOURS, end_names, line_ends

WIDTH, HEIGHT = 760.0, 360.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 190.0, 34.0, 46.0
COLOUR = ("#0072b2", "#d55e00", "#00875f", "#b5538e", "#b98300", "#3a8fc7", "#6d6d6d", "#7a5cc0")
"""The series colours of page.css, in light."""

INK, SOFT, GRID = "#1b1f24", "#5b6570", "#e2e5e9"

Scale = Callable[[Floats | float], Floats]
"""From a value to its place in the picture."""

Panel = tuple[str, str, Sequence[Curve], tuple[float, float]]
"""Title, name of the x axis, curves, and where the y axis starts and ends."""


def curves(panels: Sequence[Panel]) -> str:
    """One SVG with a figure for each panel, one below the other."""
    height = HEIGHT * len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{WIDTH:g}" height="{height:g}" fill="#ffffff"/>',
    ]
    parts.append(
        f'<clipPath id="inside"><path d="M{LEFT:g} {TOP:g}H{WIDTH:g}V{HEIGHT - BOTTOM:g}H{LEFT:g}Z"/></clipPath>'
    )
    for rank, panel in enumerate(panels):
        parts += [f'<g transform="translate(0 {rank * HEIGHT:g})">', *_figure(*panel), "</g>"]
    return "\n".join([*parts, "</svg>\n"])


def ticks(low: float, high: float, about: int = 6) -> Floats:
    """Round numbers from low to high, 1, 2 or 5 times a power of ten apart, about as many as asked."""
    rough = (high - low) / about
    power = 10.0 ** np.floor(np.log10(rough))
    step = power * min(factor for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first = np.ceil(low / step - 1e-9)
    return np.asarray(np.arange(first, np.floor(high / step + 1e-9) + 1) * step + 0.0)  # + 0.0: no -0


def _figure(title: str, axis: str, lines: Sequence[Curve], ends: tuple[float, float]) -> list[str]:
    most = max(float(line.labels[-1]) for line in lines)
    floor, top = ends

    def x(value: Floats | float) -> Floats:
        return np.asarray(LEFT + (WIDTH - LEFT - RIGHT) * np.asarray(value) / (most or 1.0))

    def y(value: Floats | float) -> Floats:
        share = (np.asarray(value) - floor) / (top - floor)
        return np.asarray(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share)

    parts = [_text(LEFT, 20, title, INK, "start", 'font-size="14" font-weight="600"')]
    for tick in ticks(floor, top):
        at = float(y(tick))
        parts += [
            f'<path d="M{LEFT:g} {at:.1f}H{WIDTH - RIGHT:g}" stroke="{GRID}"/>',
            _text(LEFT - 8, at + 4, f"{tick * 100:.4g} %", SOFT, "end"),
        ]
    for tick in ticks(0, most or 1.0):
        parts.append(_text(float(x(tick)), HEIGHT - BOTTOM + 18, f"{tick:,.6g}", SOFT, "middle"))
    parts.append(_text(float(x(most / 2)), HEIGHT - 8, axis, SOFT, "middle"))
    parts.append('<g clip-path="url(#inside)">')
    for rank, line in enumerate(lines):
        if line.low is not None and line.high is not None:
            there, back = _path(x(line.labels), y(line.high)), _path(x(line.labels)[::-1], y(line.low)[::-1])
            band = f'<path d="M{there}L{back}Z" fill="{COLOUR[rank % COLOURS]}" fill-opacity="0.16"/>'
            parts.append(band)
    for rank, line in enumerate(lines):
        path = _path(x(line.labels), y(line.value))
        parts.append(f'<path d="M{path}" fill="none" stroke="{COLOUR[rank % COLOURS]}" stroke-width="2"/>')
    return [*parts, "</g>", *_names(lines, top - floor, x, y)]


def _names(lines: Sequence[Curve], span: float, x: Scale, y: Scale) -> list[str]:
    """The name of each line at its end, moved apart where they end close together."""
    names = []
    for end in end_names(line_ends(lines), span):
        colour = COLOUR[int(end["font"]["color"][3:])]
        names.append(_raw(float(x(end["x"])) + 6, float(y(end["y"])) + 4, end["text"], colour, "start"))
    return names


def _path(x: Floats, y: Floats) -> str:
    return "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))


def _text(x: float, y: float, text: str, colour: str, anchor: str, more: str = "") -> str:
    return _raw(x, y, escape(text), colour, anchor, more)


def _raw(x: float, y: float, escaped: str, colour: str, anchor: str, more: str = "") -> str:
    space = " " if more else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"{space}{more}>{escaped}</text>'
