"""Results: frames, comparison, pictures."""

from __future__ import annotations

import html
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._command import Command
from .plan import Record, Unit

if TYPE_CHECKING:
    from .pictures import Pictures


def read(path: str | os.PathLike[str], *, command: Command | None = None) -> Results:
    """Reads a result file, as `holdfast run --out DIR` writes it."""
    return Results(Path(path).read_text(encoding="utf-8"), command or Command.find())


@dataclass(frozen=True)
class Comparison:
    """Two variants, or two results, with 95 % confidence intervals."""

    document: dict[str, Any] = field(repr=False)
    """The document that `holdfast compare --format json` prints."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row for each comparison."""
        rows: list[dict[str, Any]] = self.document["rows"]
        return rows

    def to_pandas(self) -> Any:
        """Returns the rows as a pandas frame."""
        import pandas

        return pandas.json_normalize(self.rows)

    def _repr_html_(self) -> str:
        return _table([_flat(row) for row in self.rows])


@dataclass(frozen=True)
class Results:
    """The results of an experiment."""

    text: str = field(repr=False)
    """The document, byte for byte as the command writes it."""
    command: Command = field(repr=False)
    records: list[Record] = field(default_factory=list, repr=False)
    """The records of the units, where this process has them."""
    units: list[Unit] = field(default_factory=list, repr=False)
    """The units, where this process planned them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "document", json.loads(self.text))

    document: dict[str, Any] = field(init=False, repr=False)
    """The document, schema `holdfast.results/1`."""

    @property
    def complete(self) -> bool:
        """Whether every run ended."""
        return bool(self.document["complete"])

    @property
    def failures(self) -> list[dict[str, Any]]:
        """The runs that failed, each with a command that repeats it."""
        failures: list[dict[str, Any]] = self.document["failures"]
        return failures

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the results come from, and in which unit they are."""
        keys = ("schema", "experiment", "title", "machine", "scale", "version", "command", "complete")
        units = sorted({case["unit"] for case in self.document["cases"]})
        metrics = sorted({case["metric"] for case in self.document["cases"]})
        return {**{key: self.document.get(key) for key in keys}, "metric": ", ".join(metrics), "unit": ", ".join(units)}

    def varied(self) -> dict[tuple[str, str], dict[str, Any]]:
        """Returns for each case and variant the values of those keys in which cells differ."""
        cells: dict[tuple[str, str], dict[str, Any]] = {}
        for unit in self.units:
            cells.setdefault((unit.case, unit.variant), unit.parameters)
        keys = sorted({key for parameters in cells.values() for key in parameters})
        shown = [key for key in keys if len({json.dumps(cell.get(key)) for cell in cells.values()}) > 1]
        return {cell: {key: parameters.get(key) for key in shown} for cell, parameters in cells.items()}

    def samples(self) -> list[dict[str, Any]]:
        """Returns one row for each sample: names, varied keys, seed, value, and what the simulator knows of the run."""
        varied = self.varied()
        rows = []
        for case in self.document["cases"]:
            for index, (seed, value) in enumerate(zip(case["seeds"], case["samples"], strict=True)):
                convoy = _at(case["convoys"], index)
                rows.append(
                    {
                        "experiment": self.document["experiment"],
                        "case": case["case"],
                        "variant": case["variant"],
                        "vm": case["vm"],
                        **varied.get((case["case"], case["variant"]), {}),
                        "seed": seed,
                        "metric": case["metric"],
                        "unit": case["unit"],
                        "value": value,
                        "work_share": _at(case["work_shares"], index),
                        "preempted_spin_share": _at(case["preempted_spin_shares"], index),
                        "convoy_since_ns": convoy and convoy["since_ns"],
                        "convoy_share": convoy and convoy["share"],
                        "longest_stall_ns": _at(case["longest_stalls_ns"], index),
                        "history_hash": _at(case["history_hashes"], index),
                    }
                )
        return rows

    def _long(self, table: str, name: str, value: str, background: bool) -> list[dict[str, Any]]:
        varied = self.varied()
        guests = [(case, True) for case in self.document["cases"]]
        if background:
            guests += [(guest, False) for guest in self.document["background"]]
        return [
            {
                "experiment": self.document["experiment"],
                "case": guest["case"],
                "variant": guest["variant"],
                "vm": guest["vm"],
                "measured": measured,
                **varied.get((guest["case"], guest["variant"]), {}),
                name: key,
                value: amount,
            }
            for guest, measured in guests
            for key, amount in guest[table].items()
        ]

    def lost_time(self, *, background: bool = False) -> list[dict[str, Any]]:
        """Returns one row for each guest and cause: the share of the vCPUs' time."""
        return self._long("lost_time", "cause", "share", background)

    def counters(self, *, background: bool = False) -> list[dict[str, Any]]:
        """Returns one row for each guest and counter: the mean over the runs."""
        return self._long("counters", "counter", "mean", background)

    def costs(self) -> list[dict[str, Any]]:
        """Returns one row for each unit: what its run cost the machine that it ran on."""
        return [
            {"id": record.id, "case": record.case, "variant": record.variant, "seed": record.seed, **record.cost}
            for record in self.records
        ]

    def _rows(self, table: str, background: bool) -> list[dict[str, Any]]:
        tables = {
            "samples": lambda: self.samples(),
            "lost_time": lambda: self.lost_time(background=background),
            "counters": lambda: self.counters(background=background),
            "costs": lambda: self.costs(),
        }
        if table not in tables:
            raise ValueError(f"found the table {table!r}, expected one of {', '.join(tables)}")
        return tables[table]()

    def to_pandas(self, table: str = "samples", *, background: bool = False) -> Any:
        """Returns a tidy pandas frame of `samples`, `lost_time`, `counters` or `costs`; provenance in `.attrs`."""
        import pandas

        frame = pandas.DataFrame(self._rows(table, background))
        frame.attrs.update(self.provenance)
        return frame

    def to_polars(self, table: str = "samples", *, background: bool = False) -> Any:
        """Returns the same as a polars frame, which has no place for provenance."""
        import polars

        return polars.DataFrame(self._rows(table, background), infer_schema_length=None)

    def to_xarray(self) -> Any:
        """Returns the samples as an xarray dataset over case, variant, vm and seed; unit and provenance in `.attrs`."""
        frame = self.to_pandas()
        axes = ["case", "variant", "vm", "seed"]
        values = ["value", "work_share", "preempted_spin_share", "convoy_share", "longest_stall_ns"]
        dataset = frame.set_index(axes)[values].astype("float64").to_xarray()
        dataset.attrs.update({key: str(value) for key, value in self.provenance.items()})
        dataset["value"].attrs["units"] = self.provenance["unit"]
        return dataset

    def to_parquet(self, path: str | os.PathLike[str], table: str = "samples", *, background: bool = False) -> None:
        """Writes a tidy table as Parquet, with provenance in the schema's metadata."""
        import pyarrow
        import pyarrow.parquet

        made = pyarrow.Table.from_pylist(self._rows(table, background))
        metadata = {f"holdfast.{key}": str(value) for key, value in self.provenance.items()}
        pyarrow.parquet.write_table(made.replace_schema_metadata(metadata), os.fspath(path))

    def write(self, folder: str | os.PathLike[str]) -> Path:
        """Writes the document to `folder`, as `holdfast run --out` does, and returns its path."""
        path = Path(folder) / f"{self.document['experiment']}.results.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text, encoding="utf-8")
        return path

    def _ask(self, words: Sequence[str], others: Iterable[Results] = ()) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
            paths = [result.write(Path(folder) / str(number)) for number, result in enumerate([self, *others])]
            document: dict[str, Any] = json.loads(
                self.command.run([words[0], *map(str, paths), *words[1:], "--format", "json"])
            )
            return document

    def compare(
        self, other: Results | None = None, *, baseline: str | None = None, along: str | None = None
    ) -> Comparison:
        """Compares with other results, or the variants among each other, with the command's confidence intervals.

        `along` is a swept key: its values are compared with the first one, and the intervals are corrected for the
        number of comparisons.
        """
        words = ["compare"] + (["--baseline", baseline] if baseline is not None else [])
        words += ["--along", along] if along is not None else []
        return Comparison(self._ask(words, [] if other is None else [other]))

    def explain(self) -> dict[str, Any]:
        """Returns the document that `holdfast explain --format json` prints."""
        return self._ask(["explain"])

    @property
    def plot(self) -> Pictures:
        """Pictures of the results."""
        from .pictures import Pictures

        return Pictures(self)

    def summary(self) -> list[dict[str, Any]]:
        """Returns one row for each measured guest: mean, deviation, median, range, convoys."""
        return [
            {
                "case": case["case"],
                "variant": case["variant"],
                "vm": case["vm"],
                f"mean {case['metric']}, {case['unit']}": case["mean"],
                "sd": case["sd"],
                "median": case["median"],
                "min": case["min"],
                "max": case["max"],
                "convoys": f"{sum(convoy is not None for convoy in case['convoys'])} of {len(case['samples'])}",
            }
            for case in self.document["cases"]
        ]

    def _repr_html_(self) -> str:
        title = html.escape(f"{self.document['experiment']}: {self.document.get('title') or ''}")
        state = "" if self.complete else " <b>incomplete</b>"
        failed = f", {len(self.failures)} runs failed" if self.failures else ""
        foot = html.escape(f"scale {self.document['scale']:g}, version {self.document['version']}{failed}")
        return f"<p>{title}{state}</p>{_table(self.summary())}<p><small>{foot}</small></p>"


def _at(values: list[Any], index: int) -> Any:
    """Returns a value, or `None` from the empty list of a real host."""
    return values[index] if index < len(values) else None


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row with its comparison as ratio, interval and verdict."""
    shown = {key.replace("_", " "): value for key, value in row.items() if key != "comparison"}
    compared = row.get("comparison") or {}
    interval = compared.get("interval")
    shown["ratio"] = compared.get("ratio")
    shown["95 % interval"] = interval and f"{interval[0]:.3f} to {interval[1]:.3f}"
    shown["verdict"] = str(compared.get("verdict", "no samples")).replace("-", " ")
    return shown


def _table(rows: Sequence[dict[str, Any]]) -> str:
    """Returns rows as an HTML table."""
    if not rows:
        return "<p>no rows</p>"

    def shown(value: Any) -> str:
        if isinstance(value, float):
            return f"{value:.4g}"
        return "–" if value is None else html.escape(str(value))

    def cell(tag: str, key: str, text: str) -> str:
        numbers = all(isinstance(row.get(key), int | float | None) for row in rows)
        side = "right" if numbers else "left"
        return f'<{tag} style="text-align:{side};padding:.2em .7em;white-space:nowrap">{text}</{tag}>'

    heads = "".join(cell("th", key, html.escape(key)) for key in rows[0])
    body = "".join("<tr>" + "".join(cell("td", key, shown(row.get(key))) for key in rows[0]) + "</tr>" for row in rows)
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div style="max-width:100%;overflow-x:auto">{table}</div>'
