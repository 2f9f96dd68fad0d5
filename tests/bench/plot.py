#!/usr/bin/env python3
"""Draws points as an SVG, for the docs:  plot.py POINTS > FILE.svg

POINTS has `GB seconds` on each line. Both axes are logarithmic, so that 0.1 GB is as good to see as 8; the line is the one through the
origin that fits best: a time that grows linearly lies along it.
"""

import math
import sys

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 400, 64, 48, 16, 24


def main():
    with open(sys.argv[1]) as file:
        points = [tuple(map(float, line.split())) for line in file if line.strip()]
    # The best rate for errors in proportion: the geometric mean.
    rate = math.exp(sum(math.log(s / gb) for gb, s in points) / len(points))
    decades = lambda values: (math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)) or 1))
    (x0, x1), (y0, y1) = decades([gb for gb, _ in points]), decades([s for _, s in points] + [rate * gb for gb, _ in points])
    x1, y1 = max(x1, x0 + 1), max(y1, y0 + 1)
    x = lambda gb: LEFT + (math.log10(gb) - x0) / (x1 - x0) * (WIDTH - LEFT - RIGHT)
    y = lambda s: HEIGHT - BOTTOM - (math.log10(s) - y0) / (y1 - y0) * (HEIGHT - BOTTOM - TOP)
    label = lambda n: f"{10.0 ** n:g}"
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for n in range(x0, x1 + 1):
        at = x(10.0**n)
        out.append(f'<path d="M{at:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        out.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{label(n)}</text>')
    for n in range(y0, y1 + 1):
        at = y(10.0**n)
        out.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{label(n)}</text>')
    first, last = min(gb for gb, _ in points), max(gb for gb, _ in points)
    out.append(
        f'<path d="M{x(first):.1f} {y(rate * first):.1f}L{x(last):.1f} {y(rate * last):.1f}" stroke="#888" stroke-dasharray="4"/>'
    )
    for gb, s in points:
        out.append(f'<circle cx="{x(gb):.1f}" cy="{y(s):.1f}" r="4" fill="#06c"/>')
    out.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}" text-anchor="middle">input, GB</text>')
    out.append(f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 {HEIGHT / 2})">build, s</text>')
    out.append(f'<text x="{LEFT + 12}" y="{TOP + 18}">line: {rate:.2f} s for each GB</text>')
    out.append("</svg>")
    print("\n".join(out))


main()
