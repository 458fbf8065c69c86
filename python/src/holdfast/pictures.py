"""Pictures of results.

Two libraries, for two uses. Matplotlib draws what is printed or kept: it needs no browser and writes SVG and PDF. Altair
draws what is looked at in a notebook: a chart is a small JSON document with its data, so a saved notebook shows it
without a server. (Plotly would add several megabytes of JavaScript to each notebook.)
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._command import needed
from ._values import column, in_order, number, without

if TYPE_CHECKING:
    from .results import Results

GRAYS = {"other causes": "#b8b8b8", "idle": "#e6e6e6", "off": "#f2f2f2"}
"""Colors of causes that are no loss, or many."""
COLORS = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#bab0ac"]
"""Colors of variants and causes, which readers with a color vision deficiency can tell apart in this order."""
LINES_MAX = 8
"""Most lines in one panel."""


@dataclass(frozen=True)
class Picture:
    """A picture by Matplotlib, which notebooks show as SVG."""

    figure: Any = field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the picture in the format of the path's extension."""
        self.figure.savefig(path, bbox_inches="tight")

    def svg(self) -> str:
        """Returns the picture as SVG."""
        text = io.StringIO()
        # The same picture is the same text: no date, no random names.
        with needed("matplotlib", "plots").rc_context({"svg.hashsalt": "holdfast"}):
            self.figure.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None})
        return text.getvalue()

    def _repr_html_(self) -> str:
        svg = self.svg()
        # White below the picture keeps its text legible on a dark page.
        return f'<div style="background:#fff;max-width:100%;overflow-x:auto">{svg[svg.index("<svg") :]}</div>'


@dataclass(frozen=True)
class Pictures:
    """The pictures of one result."""

    results: Results = field(repr=False)

    def _axes(self, width: float, height: float) -> tuple[Any, Any]:
        # A figure of its own, without pyplot: nothing to close, and no state that threads share.
        figure = needed("matplotlib.figure", "plots").Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        return figure, axes

    def _part(self, where: Mapping[str, Any] | None) -> Pictures:
        """Returns the pictures of a part of the results, as `Results.where` chooses it."""
        return Pictures(self.results.where(where)) if where else self

    def samples(self, *, log: bool = False, where: Mapping[str, Any] | None = None) -> Picture:
        """Every sample of every guest, with the mean as a bar and the published figure as a hollow diamond.

        `where` chooses a part of the results in this and all other pictures, as `Results.where` does.
        """
        cases = self.results.where(where).document["cases"]
        names = list(dict.fromkeys(case["case"] for case in cases))
        variants = list(dict.fromkeys(case["variant"] for case in cases))
        figure, axes = self._axes(max(4.0, 1.1 * len(names) * max(1, len(variants) / 2) + 1.5), 3.6)
        for case in cases:
            color = COLORS[variants.index(case["variant"]) % len(COLORS)]
            step = 0.8 / len(variants)
            at = names.index(case["case"]) + (variants.index(case["variant"]) + 0.5) * step - 0.4
            axes.plot([at] * len(case["samples"]), case["samples"], "o", color=color, alpha=0.6, markersize=4)
            if case["mean"] is not None:
                axes.hlines(case["mean"], at - step / 3, at + step / 3, color=color, linewidth=2)
            if case["published"] is not None:
                axes.plot([at], [case["published"]["mean"]], "D", color="black", fillstyle="none", markersize=6)
        # Names of swept cells are long: below each other they would overlap.
        long = max(map(len, names), default=0) > 10
        axes.set_xticks(range(len(names)), names, **({"rotation": 30, "ha": "right"} if long else {}))
        axes.set_ylabel(f"{cases[0]['metric']}, {cases[0]['unit']}" if cases else "")
        if log:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        handles = [
            axes.plot([], [], "o", color=COLORS[index % len(COLORS)], label=name)[0]
            for index, name in enumerate(variants)
        ]
        axes.legend(handles=handles, frameon=False)
        axes.set_title(self.results.document["experiment"], loc="left", fontsize="medium")
        return Picture(figure)

    def lost_time(self, *, most: int = 8, where: Mapping[str, Any] | None = None) -> Picture:
        """Where the vCPUs' time went: one bar for each guest, with the `most` largest causes; idle time is the last."""
        rows = self.results.where(where).lost_time()
        totals: dict[str, float] = {}
        for row in rows:
            totals[row["cause"]] = totals.get(row["cause"], 0.0) + row["share"]
        idle = [cause for cause in ("idle", "off") if totals.get(cause)]
        causes = sorted(totals, key=lambda cause: (cause != "useful", -totals[cause]))
        largest = [cause for cause in causes if cause not in idle][:most]
        bars = list(dict.fromkeys((row["case"], row["variant"], row["vm"]) for row in rows))
        figure, axes = self._axes(8.0, 0.35 * len(bars) + 1.4)
        left = [0.0] * len(bars)
        shown = [*largest, *idle]
        for number, cause in enumerate([*largest, "other causes", *idle]):
            share = [0.0] * len(bars)
            for row in rows:
                if (row["cause"] if row["cause"] in shown else "other causes") == cause:
                    share[bars.index((row["case"], row["variant"], row["vm"]))] += row["share"]
            color = GRAYS.get(cause) or COLORS[number % len(COLORS)]
            axes.barh(range(len(bars)), share, left=left, color=color, label=cause.replace("_", " "))
            left = [before + width for before, width in zip(left, share, strict=True)]
        axes.set_yticks(range(len(bars)), [" / ".join(bar) for bar in bars])
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of the vCPUs' time")
        figure.legend(loc="outside right center", frameon=False, fontsize="small")
        return Picture(figure)

    def _curves(self, key: str) -> list[dict[str, Any]]:
        """Returns the lines over a swept key, as the command computes them: geometric means with 95 % intervals."""
        swept = list(dict.fromkeys(step["key"] for case in self.results.document["cases"] for step in case.get("swept", [])))
        # A key of all guests has another name in frames.
        named = {column(name): name for name in swept} | {name: name for name in swept}
        if key not in named:
            raise KeyError(f"found {key!r}, expected a swept key: {', '.join(swept) or 'none here'}")
        curves: list[dict[str, Any]] = self.results.compare(along=named[key]).document["curves"]
        return curves

    def curve(self, key: str, *, log: bool = False, where: Mapping[str, Any] | None = None) -> Picture:
        """Geometric means over a swept key with their 95 % intervals, one line for each case, variant and guest.

        More lines than a reader can tell apart are in several panels, each with the same axes.
        """
        curves = self._part(where)._curves(key)
        values = sorted(dict.fromkeys(point["value"] for line in curves for point in line["points"]), key=_size)
        places = _places(values)
        names = [_parts(line) for line in curves]
        # Parts of names that all lines share say nothing.
        told = [part for part in names[0] if len({name[part] for name in names}) > 1]
        panels, lines = _panels(names, told)
        columns = min(3, len(panels))
        rows = math.ceil(len(panels) / columns)
        size = (6.4, 3.8) if len(panels) == 1 else (3.4 * columns, 2.8 * rows + 0.6)
        figure = needed("matplotlib.figure", "plots").Figure(figsize=size, layout="constrained")
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        ends = [end for line in curves for point in line["points"] for end in point["interval"] or ()]
        for number, panel in enumerate(panels):
            axes = grid[number // columns][number % columns]
            for line, name in zip(curves, names, strict=True):
                if tuple(name[part] for part in told if part not in lines) == panel:
                    told_here = tuple(name[part] for part in lines)
                    _draw(axes, line, places, _order(names, lines).index(told_here), _label(lines, told_here))
            axes.set_title(_label([part for part in told if part not in lines], panel), fontsize="small")
            axes.spines[["top", "right"]].set_visible(False)
            # As on the command's page: what differs twelvefold has a logarithmic axis.
            if ends and max(ends) > 12 * min(ends):
                axes.set_yscale("log")
            else:
                axes.set_ylim(bottom=0)
            if log:
                axes.set_xscale("log", base=2)
            if log or not _are_numbers(values):
                axes.set_xticks([places[value] for value in values], values)
                axes.minorticks_off()
        for axes in list(grid.flat)[len(panels) :]:
            axes.set_visible(False)
        figure.supxlabel(key, fontsize="medium")
        figure.supylabel(f"{curves[0]['metric']}, {curves[0]['unit']}", fontsize="medium")
        if lines:
            handles: dict[str, Any] = {}
            for axes in grid.flat:
                handles |= dict(reversed(pair) for pair in zip(*axes.get_legend_handles_labels(), strict=True))
            figure.legend(
                handles.values(), handles, loc="outside upper left", frameon=False, fontsize="small", ncols=min(3, columns + 1)
            )
        return Picture(figure)

    def matrix(self, *, baseline: str | None = None, where: Mapping[str, Any] | None = None) -> Picture:
        """Variants by guests: the change of each, in percent, as a heat table.

        Proven changes are colored, blue where better and orange where worse. Others are in parentheses.
        """
        matrix = self.results.where(where).compare(baseline=baseline).document["matrix"]
        if not matrix["rows"]:
            raise ValueError("found one variant, expected several to compare")
        columns = list(matrix["guests"])
        rows = [list(line["guests"]) for line in matrix["rows"]]
        if len(columns) > 1:
            columns = ["all guests", *columns]
            rows = [[line["all"], *line["guests"]] for line in matrix["rows"]]
        cases = {line["case"] for line in matrix["rows"]}
        labels = [
            line["variant"] if len(cases) == 1 else f"{line['case']} / {line['variant']}" for line in matrix["rows"]
        ]
        figure, axes = self._axes(2.6 + 1.1 * len(columns), 1.0 + 0.32 * len(rows))
        heat = [[_heat(change) for change in row] for row in rows]
        axes.imshow(heat, aspect="auto", cmap="PuOr", vmin=-1.4, vmax=1.4)
        for index, row in enumerate(rows):
            for at, change in enumerate(row):
                axes.text(at, index, _change(change), ha="center", va="center", fontsize="small")
        axes.set_xticks(range(len(columns)), columns)
        axes.xaxis.tick_top()
        axes.set_yticks(range(len(rows)), labels)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_title(f"change against {matrix['against']}, %", loc="left", fontsize="medium")
        return Picture(figure)

    def heat_map(
        self,
        down: str,
        across: str,
        *,
        case: str | None = None,
        variant: str | None = None,
        vm: str | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> Picture:
        """The geometric mean over two swept keys of one guest, one cell for each pair of values.

        `case`, `variant` and `vm` choose the guest: a case by the beginning of its name.
        """
        curves = self._part(where)._curves(across)
        [(row_key, _)] = [(key, value) for key, value in curves[0]["others"].items() if down in (key, column(key))] or [
            (None, None)
        ]
        if row_key is None:
            raise KeyError(f"found {down!r}, expected another swept key: {', '.join(curves[0]['others']) or 'none here'}")
        chosen = [
            line
            for line in curves
            if (case is None or line["case"].startswith(case))
            and (variant is None or line["variant"].startswith(variant))
            and (vm is None or line["vm"] == vm)
        ]
        rows: dict[str, dict[str, Any]] = {}
        for line in chosen:
            value = line["others"][row_key]
            if value in rows:
                both = " and ".join(f"{it['case']} / {it['variant']} / {it['vm']}" for it in (rows[value], line))
                raise ValueError(f"found {both}, expected one guest: choose it by case=, variant= or vm=")
            rows[value] = line
        if not rows:
            raise ValueError(f"found no guest of case={case!r}, variant={variant!r}, vm={vm!r}")
        columns = list(dict.fromkeys(point["value"] for line in rows.values() for point in line["points"]))
        grid = [
            [next((it["mean"] for it in line["points"] if it["value"] == column), None) for column in columns]
            for line in rows.values()
        ]
        numbers = [[math.nan if mean is None else mean for mean in means] for means in grid]
        figure, axes = self._axes(1.8 + 0.9 * len(columns), 1.4 + 0.45 * len(rows))
        known = [mean for means in numbers for mean in means if not math.isnan(mean)]
        low = min(known, default=1.0)
        # Small differences must not look like large ones.
        high = max([*known, 1.1 * low])
        image = axes.imshow(numbers, aspect="auto", cmap="cividis", vmin=low, vmax=high)
        for index, means in enumerate(numbers):
            for at, mean in enumerate(means):
                dark = (mean - low) / (high - low) < 0.5
                axes.text(at, index, f"{mean:.4g}", ha="center", va="center", color="white" if dark else "black")
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(rows)), list(rows))
        axes.set_xlabel(across)
        axes.set_ylabel(down)
        axes.spines[:].set_visible(False)
        first = next(iter(rows.values()))
        figure.colorbar(image, label=f"{first['metric']}, {first['unit']}")
        return Picture(figure)

    def interactive(self, *, where: Mapping[str, Any] | None = None) -> Any:
        """Every sample as an Altair chart: tooltips with seed and convoys, and a legend that selects variants."""
        altair = needed("altair", "plots")
        frame = self.results.to_pandas(where=where)
        # Altair would sort by letters: 1024 before 64, and colors unlike those of the other pictures.
        cases, variants = list(dict.fromkeys(frame["case"])), list(dict.fromkeys(frame["variant"]))
        frame.columns = [name.replace(".", "_").replace("*", "all") for name in frame.columns]
        picked = altair.selection_point(fields=["variant"], bind="legend")
        chart = altair.Chart(frame, title=self.results.document["experiment"], width=altair.Step(40))
        return (
            chart.mark_circle(size=60)
            .encode(
                x=altair.X("case:N", title=None, sort=cases),
                xOffset=altair.XOffset("variant:N", sort=variants),
                y=altair.Y("value:Q", title=f"{frame['metric'].iloc[0]}, {frame['unit'].iloc[0]}"),
                color=altair.Color("variant:N", sort=variants, scale=altair.Scale(range=COLORS)),
                opacity=altair.condition(picked, altair.value(0.8), altair.value(0.1)),
                tooltip=["case", "variant", "vm", "seed", "value", "work_share", "convoy_share"],
            )
            .add_params(picked)
        )


def _size(value: str) -> tuple[int, float, str]:
    """Returns what values of an axis are sorted by. Words keep their order."""
    kind, size, _ = in_order(number(value))
    return (kind, size, "")


def _parts(line: dict[str, Any]) -> dict[str, str]:
    """Returns the parts of a line's name: names without the values of other swept keys, and these values."""
    others = {key: str(value) for key, value in line["others"].items()}
    steps = [{"step": f"{key.rsplit('.', 1)[-1]}={value}"} for key, value in others.items()]
    return {**{part: without(line[part], steps) for part in ("case", "variant")}, "guest": line["vm"], **others}


def _order(names: list[dict[str, str]], parts: list[str]) -> list[tuple[str, ...]]:
    """Returns the different names that these parts make, in their order."""
    return list(dict.fromkeys(tuple(name[part] for part in parts) for name in names))


def _panels(names: list[dict[str, str]], told: list[str]) -> tuple[list[tuple[str, ...]], list[str]]:
    """Divides lines among panels. Returns the panels, and the parts of names that tell the lines of one apart."""
    lines = list(told)
    # The parts with the fewest values, the names before the keys, say which panel.
    while len(lines) > 1 and len(_order(names, lines)) > LINES_MAX:
        lines.remove(min(lines, key=lambda part: len(_order(names, [part]))))
    return _order(names, [part for part in told if part not in lines]), lines


def _label(parts: list[str], values: tuple[str, ...]) -> str:
    """Returns values as text; those of keys with the key."""
    shown = [
        value if part in ("case", "variant", "guest") else f"{part.rsplit('.', 1)[-1]}={value}"
        for part, value in zip(parts, values, strict=True)
    ]
    return ", ".join(text for text in shown if text)


def _draw(axes: Any, line: dict[str, Any], places: dict[str, float], style: int, label: str) -> None:
    """Draws a line with its intervals."""
    points = [point for point in line["points"] if point["mean"] is not None]
    points.sort(key=lambda point: places[point["value"]])
    reach = [point["interval"] or (point["mean"], point["mean"]) for point in points]
    axes.errorbar(
        [places[point["value"]] for point in points],
        [point["mean"] for point in points],
        yerr=[
            [point["mean"] - low for point, (low, _) in zip(points, reach, strict=True)],
            [high - point["mean"] for point, (_, high) in zip(points, reach, strict=True)],
        ],
        fmt=("o-", "s--", "^:")[style // len(COLORS) % 3],
        color=COLORS[style % len(COLORS)],
        capsize=3,
        label=label,
    )


def _heat(change: dict[str, Any] | None) -> float:
    """Returns the color of a change from -1, worse twofold or more, to 1, better; 0 if nothing is proven."""
    if not change or change["judgment"] not in ("better", "worse"):
        return 0.0
    size = min(1.0, 0.15 + abs(math.log(max(1e-9, 1 + change["percent"] / 100))) / math.log(2))
    return size if change["judgment"] == "better" else -size


def _change(change: dict[str, Any] | None) -> str:
    """Returns a change as text, as the command shows it."""
    if not change:
        return "–"
    percent, judgment = change["percent"], change["judgment"]
    text = f"x {1 + percent / 100:.1f}" if percent >= 900 else f"{percent:+.1f}"
    return {"better": text, "worse": text, "equal": "=", "identical": "same"}.get(judgment, f"({text})")


def _are_numbers(values: list[str]) -> bool:
    try:
        return all(math.isfinite(float(value)) for value in values)
    except ValueError:
        return False


def _places(values: list[str]) -> dict[str, float]:
    """Returns where each value is on an axis: at its number, or one after the other if some are no numbers."""
    if _are_numbers(values):
        return {value: float(value) for value in values}
    return {value: float(index) for index, value in enumerate(values)}
