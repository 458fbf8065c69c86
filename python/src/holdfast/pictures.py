"""Pictures of results.

Two libraries, for two uses. Matplotlib draws what is printed or kept: it needs no browser and writes SVG and PDF. Altair
draws what is looked at in a notebook: a chart is a small JSON document with its data, so a saved notebook shows it
without a server. (Plotly would add several megabytes of JavaScript to each notebook.)
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .results import Results

COLORS = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#bab0ac"]
"""Colors of variants and causes, which readers with a color vision deficiency can tell apart in this order."""


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
        self.figure.savefig(text, format="svg", bbox_inches="tight")
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
        from matplotlib.figure import Figure

        # A figure of its own, without pyplot: nothing to close, and no state that threads share.
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        return figure, axes

    def samples(self, *, log: bool = False) -> Picture:
        """Every sample of every guest, with the mean as a bar and the published figure as a hollow diamond."""
        cases = self.results.document["cases"]
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
        axes.set_xticks(range(len(names)), names)
        axes.set_ylabel(f"{cases[0]['metric']}, {cases[0]['unit']}" if cases else "")
        if log:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        handles = [
            axes.plot([], [], "o", color=COLORS[number % len(COLORS)], label=name)[0]
            for number, name in enumerate(variants)
        ]
        axes.legend(handles=handles, frameon=False)
        axes.set_title(self.results.document["experiment"], loc="left", fontsize="medium")
        return Picture(figure)

    def lost_time(self, *, most: int = 8) -> Picture:
        """Where the vCPUs' time went: one bar for each guest, with the `most` largest causes."""
        rows = self.results.lost_time()
        totals: dict[str, float] = {}
        for row in rows:
            totals[row["cause"]] = totals.get(row["cause"], 0.0) + row["share"]
        largest = sorted(totals, key=lambda cause: -totals[cause])[:most]
        bars = list(dict.fromkeys((row["case"], row["variant"], row["vm"]) for row in rows))
        figure, axes = self._axes(8.0, 0.35 * len(bars) + 1.4)
        left = [0.0] * len(bars)
        for number, cause in enumerate([*largest, "other causes"]):
            share = [0.0] * len(bars)
            for row in rows:
                if (row["cause"] if row["cause"] in largest else "other causes") == cause:
                    share[bars.index((row["case"], row["variant"], row["vm"]))] += row["share"]
            color = COLORS[number] if number < len(COLORS) - 1 else "#dddddd"
            axes.barh(range(len(bars)), share, left=left, color=color, label=cause.replace("_", " "))
            left = [before + width for before, width in zip(left, share, strict=True)]
        axes.set_yticks(range(len(bars)), [" / ".join(bar) for bar in bars])
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of the vCPUs' time")
        figure.legend(loc="outside right center", frameon=False, fontsize="small")
        return Picture(figure)

    def curve(self, key: str, *, log: bool = False) -> Picture:
        """The mean over a swept key with a 95 % interval of Student's t, one line for each variant and guest."""
        import pandas

        frame = self.results.to_pandas()
        if key not in frame.columns:
            known = sorted({name for cell in self.results.varied().values() for name in cell})
            raise KeyError(f"found {key!r}, expected a key that varies: {', '.join(known) or 'none here'}")
        frame["at"] = pandas.to_numeric(frame[key], errors="coerce")
        if frame["at"].isna().any():
            frame["at"] = frame[key].astype(str)
        figure, axes = self._axes(6.0, 3.6)
        for number, ((variant, vm), line) in enumerate(frame.groupby(["variant", "vm"], sort=False)):
            values = line.groupby("at", sort=False)["value"].agg(["mean", "sem", "count"])
            half = [error * _student(int(count)) for error, count in zip(values["sem"].fillna(0), values["count"])]
            color = COLORS[number % len(COLORS)]
            axes.errorbar(
                values.index, values["mean"], yerr=half, fmt="o-", color=color, capsize=3, label=f"{variant}, {vm}"
            )
        axes.set_xlabel(key)
        axes.set_ylabel(f"{frame['metric'].iloc[0]}, {frame['unit'].iloc[0]}")
        if log:
            axes.set_xscale("log", base=2)
        axes.legend(frameon=False)
        return Picture(figure)

    def heat_map(self, down: str, across: str, *, case: str | None = None, variant: str | None = None) -> Picture:
        """The mean over two swept keys of one guest, one cell for each pair of values."""
        frame = self.results.to_pandas()
        for key in (down, across):
            if key not in frame.columns:
                known = sorted({name for cell in self.results.varied().values() for name in cell})
                raise KeyError(f"found {key!r}, expected a key that varies: {', '.join(known) or 'none here'}")
        for column, name in (("case", case), ("variant", variant)):
            if name is not None:
                frame = frame[frame[column].str.startswith(name)]
        grid = frame.pivot_table(index=down, columns=across, values="value", aggfunc="mean", sort=False)
        figure, axes = self._axes(1.2 + 0.8 * len(grid.columns), 1.2 + 0.4 * len(grid.index))
        image = axes.imshow(grid.to_numpy(), aspect="auto", cmap="cividis")
        axes.set_xticks(range(len(grid.columns)), [str(value) for value in grid.columns])
        axes.set_yticks(range(len(grid.index)), [str(value) for value in grid.index])
        axes.set_xlabel(across)
        axes.set_ylabel(down)
        axes.spines[:].set_visible(False)
        figure.colorbar(image, label=f"{frame['metric'].iloc[0]}, {frame['unit'].iloc[0]}")
        return Picture(figure)

    def interactive(self) -> Any:
        """Every sample as an Altair chart: tooltips with seed and convoys, and a legend that selects variants."""
        import altair

        frame = self.results.to_pandas()
        frame.columns = [name.replace(".", "_").replace("*", "all") for name in frame.columns]
        picked = altair.selection_point(fields=["variant"], bind="legend")
        chart = altair.Chart(frame, title=self.results.document["experiment"], width=altair.Step(40))
        return (
            chart.mark_circle(size=60)
            .encode(
                x=altair.X("case:N", title=None),
                xOffset="variant:N",
                y=altair.Y("value:Q", title=f"{frame['metric'].iloc[0]}, {frame['unit'].iloc[0]}"),
                color=altair.Color("variant:N", scale=altair.Scale(range=COLORS)),
                opacity=altair.condition(picked, altair.value(0.8), altair.value(0.1)),
                tooltip=["case", "variant", "vm", "seed", "value", "work_share", "convoy_share"],
            )
            .add_params(picked)
        )


def _student(count: int) -> float:
    """Returns the 97.5 % quantile of Student's t for a mean of `count` values."""
    table = [0.0, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145]
    freedom = count - 1
    if freedom < 1:
        return 0.0
    # Beyond the table the expansion of Cornish and Fisher is exact to three digits.
    return table[freedom] if freedom < len(table) else 1.95996 + 2.37227 / freedom + 2.82250 / freedom**2
