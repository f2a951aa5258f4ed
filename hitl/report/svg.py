"""Curves as one SVG file, for documents that accept images but no scripts, in the colors of the page."""

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
"""Series colors of page.css in light mode."""

INK, SOFT, GRID = "#1b1f24", "#5b6570", "#e2e5e9"

Panel = tuple[str, str, Sequence[Curve], tuple[float, float]]
"""Title, name of the x axis, curves, and ends of the y axis."""


def curves(panels: Sequence[Panel]) -> str:
    """Draw one figure per panel, stacked vertically."""
    height = HEIGHT * len(panels)
    inside = f"M{LEFT:g} {TOP:g}H{WIDTH:g}V{HEIGHT - BOTTOM:g}H{LEFT:g}Z"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {height:g}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{WIDTH:g}" height="{height:g}" fill="#ffffff"/>',
        f'<clipPath id="inside"><path d="{inside}"/></clipPath>',
    ]
    for rank, panel in enumerate(panels):
        parts += [f'<g transform="translate(0 {rank * HEIGHT:g})">', *_panel(*panel), "</g>"]
    return "\n".join([*parts, "</svg>\n"])


def ticks(low: float, high: float, about: int = 6) -> Floats:
    """Return about `about` round numbers from low to high, 1, 2 or 5 times a power of ten apart."""
    rough = (high - low) / about
    power = 10.0 ** np.floor(np.log10(rough))
    step = power * min(factor for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9)
    return np.asarray(np.arange(first, last + 1) * step + 0.0)  # + 0.0 turns -0 into 0


def _panel(title: str, axis: str, lines: Sequence[Curve], ends: tuple[float, float]) -> list[str]:
    most = max(float(line.labels[-1]) for line in lines) or 1.0
    floor, top = ends
    x, y = _scale(0.0, most, LEFT, WIDTH - RIGHT), _scale(floor, top, HEIGHT - BOTTOM, TOP)
    bold = 'font-size="14" font-weight="600"'
    parts = [_text(LEFT, 20, escape(title), INK, "start", bold)]
    for tick in ticks(floor, top).tolist():
        parts.append(f'<path d="M{LEFT:g} {y(tick):.1f}H{WIDTH - RIGHT:g}" stroke="{GRID}"/>')
        parts.append(_text(LEFT - 8, y(tick) + 4, f"{tick * 100:.4g} %", SOFT, "end"))
    for tick in ticks(0, most).tolist():
        parts.append(_text(x(tick), HEIGHT - BOTTOM + 18, f"{tick:,.6g}", SOFT, "middle"))
    parts.append(_text(x(most / 2), HEIGHT - 8, escape(axis), SOFT, "middle"))
    parts.append('<g clip-path="url(#inside)">')
    for rank, line in enumerate(lines):
        if line.low is not None and line.high is not None:
            there, back = _path(x(line.labels), y(line.high)), _path(x(line.labels)[::-1], y(line.low)[::-1])
            parts.append(f'<path d="M{there}L{back}Z" fill="{COLOUR[rank % COLOURS]}" fill-opacity="0.16"/>')
    for rank, line in enumerate(lines):
        path = _path(x(line.labels), y(line.value))
        parts.append(f'<path d="M{path}" fill="none" stroke="{COLOUR[rank % COLOURS]}" stroke-width="2"/>')
    parts.append("</g>")
    for end in end_names(line_ends(lines), top - floor):
        colour = COLOUR[int(end["font"]["color"][3:])]
        parts.append(_text(x(end["x"]) + 6, y(end["y"]) + 4, end["text"], colour, "start"))
    return parts


def _scale(low: float, high: float, start: float, end: float) -> Callable[[Floats | float], Floats]:
    """Return a function that maps values between low and high to positions in the image."""
    return lambda value: np.asarray(start + (end - start) * (np.asarray(value) - low) / (high - low))


def _path(x: Floats, y: Floats) -> str:
    return "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))


def _text(x: Floats | float, y: Floats | float, escaped: str, colour: str, anchor: str, more: str = "") -> str:
    place = f'x="{float(x):.1f}" y="{float(y):.1f}" fill="{colour}" text-anchor="{anchor}"'
    return f"<text {place}{' ' if more else ''}{more}>{escaped}</text>"
