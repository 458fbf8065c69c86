"""Results: frames, comparison, pictures."""

from __future__ import annotations

import html
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._command import Command, needed
from ._values import by_guest, column, in_order, matches, number, without
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
        return needed("pandas", "frames").json_normalize(self.rows)

    @property
    def verdict(self) -> str:
        """What is proven, in one sentence."""
        return str(self.document.get("verdict", ""))

    def matrix(self) -> Any:
        """Returns variants by guests as a pandas frame: changes in percent, where they are proven, or else missing.

        `document["matrix"]` has all changes with their intervals, which are corrected for the number of comparisons.
        """
        pandas = needed("pandas", "frames")
        matrix = self.document["matrix"]
        columns = [*(["all guests"] if len(matrix["guests"]) > 1 else []), *matrix["guests"]]
        rows = [[*([line["all"]] if len(matrix["guests"]) > 1 else []), *line["guests"]] for line in matrix["rows"]]
        cells = [
            [change["percent"] if change and change["judgment"] in ("better", "worse") else None for change in row]
            for row in rows
        ]
        index = pandas.MultiIndex.from_tuples(
            [(line["case"], line["variant"]) for line in matrix["rows"]], names=["case", "variant"]
        )
        return pandas.DataFrame(cells, index=index, columns=columns, dtype="float64")

    def __str__(self) -> str:
        return "\n".join(filter(None, [self.verdict, plain([_flat(row) for row in self.rows])]))

    def _repr_html_(self) -> str:
        return (f"<p>{html.escape(self.verdict)}</p>" if self.verdict else "") + _table([_flat(row) for row in self.rows])


@dataclass(frozen=True, repr=False)
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
    """The document, schema `holdfast.results/2`."""

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
        """Returns for each case and variant the values of those keys in which cells differ.

        A key of guests has a value for each guest, `vm.build.lock` and `vm.hogs.lock`, and one for all of them,
        `vm.*.lock`, where they agree in every cell. Results from a file have the swept keys only.
        """
        cells: dict[tuple[str, str], dict[str, Any]] = {}
        for unit in self.units:
            if (unit.case, unit.variant) not in cells:
                cells[unit.case, unit.variant] = by_guest(unit.parameters, self._guests(unit.case, unit.variant))
        if not self.units:
            for case in self.document["cases"]:
                swept = {column(step["key"]): number(step["value"]) for step in case.get("swept", [])}
                cells.setdefault((case["case"], case["variant"]), swept)
        keys = sorted({key for parameters in cells.values() for key in parameters})

        swept_keys = {column(step["key"]) for case in self.document["cases"] for step in case.get("swept", [])}

        def differ(key: str) -> bool:
            # A swept key stays a column where a part of the results has one of its values.
            return key in swept_keys or len({json.dumps(cell.get(key)) for cell in cells.values()}) > 1

        guests = {key.split(".", 2)[1] for key in keys if key.startswith("vm.")}
        own = {key.split(".", 2)[2] for key in keys if key.startswith("vm.") and differ(key)}
        shown = [key for key in keys if differ(key) or (key.startswith("vm.") and key.split(".", 2)[2] in own)]
        # Where guests do not agree in every cell, there is no value for all of them.
        whole = {name for name in own if all(f"vm.*.{name}" in cell for cell in cells.values())}
        shown = [key for key in shown if not key.startswith("vm.*.") or key.split(".", 2)[2] in whole]
        # Guests that are alone need no columns of their own.
        if guests <= {"*"}:
            shown = [key for key in shown if differ(key)]
        return {cell: {key: parameters.get(key) for key in shown} for cell, parameters in cells.items()}

    def _guests(self, case: str, variant: str) -> list[str]:
        rows = [*self.document["cases"], *self.document["background"]]
        return [row["vm"] for row in rows if (row["case"], row["variant"]) == (case, variant)]

    def where(self, where: Mapping[str, Any] | None) -> Results:
        """Returns a part of the results: `where({"case": "2x", "vm": ["db", "web"], "host.hz": 250})`.

        Keys are columns of `samples`: `case`, `variant`, `vm`, or a key in which cells differ. A value is one, or a list
        of several. Identical guests and swept cases also have a common name: the beginning of their names.
        """
        if not where:
            return self
        varied = self.varied()
        known = ["case", "variant", "vm", *dict.fromkeys(key for cell in varied.values() for key in cell)]
        wanted = {(key if key in known else column(key)): value for key, value in where.items()}
        for key in wanted:
            if key not in known:
                raise KeyError(f"found {key!r}, expected one of {', '.join(known)}")

        def kept(row: dict[str, Any], *names: str) -> bool:
            cell = varied.get((row["case"], row["variant"]), {})
            return all(
                matches(row[key] if key in names else cell.get(key), value, is_name=key in names)
                for key, value in wanted.items()
                if key in names or key not in ("case", "variant", "vm")
            )

        document = dict(self.document)
        for table in ("cases", "background"):
            document[table] = [row for row in self.document[table] if kept(row, "case", "variant", "vm")]
        document["failures"] = [row for row in self.failures if kept(row, "case", "variant")]
        if not document["cases"]:
            raise ValueError(f"found no guest of {', '.join(f'{key}={value!r}' for key, value in where.items())}")
        left = {(case["case"], case["variant"], case["vm"]) for case in document["cases"]}
        # A total of identical guests needs all of them.
        document["totals"] = [
            total
            for total in self.document.get("totals", [])
            if all((total["case"], total["variant"], f"{total['vm']}-{n}") in left for n in range(1, total["guests"] + 1))
        ]
        cells = {(case["case"], case["variant"]) for case in document["cases"]}
        return Results(
            json.dumps(document, indent=2) + "\n",
            self.command,
            records=[record for record in self.records if (record.case, record.variant) in cells],
            units=[unit for unit in self.units if (unit.case, unit.variant) in cells],
        )

    def samples(self) -> list[dict[str, Any]]:
        """Returns one row for each sample: names, varied keys, seed, value, and what the simulator knows of the run.

        Guests that count operations have their rate, and the median and the 99th percentile of the operations' times.
        """
        varied = self.varied()
        rows = []
        for case in self.document["cases"]:
            service = case.get("service") or {}
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
                        "rate": _at(service.get("rates", []), index),
                        "p50_ms": _at(service.get("p50_ms", []), index),
                        "p99_ms": _at(service.get("p99_ms", []), index),
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

    def operators(self, *, background: bool = False) -> list[dict[str, Any]]:
        """Returns one row for each guest: CPU ready, steal, longest waits, throttled periods, exits per second."""
        varied = self.varied()
        guests = [(case, True) for case in self.document["cases"]]
        if background:
            guests += [(guest, False) for guest in self.document["background"]]
        found = [guest.get("operators") or {} for guest, _ in guests]
        names = list(dict.fromkeys(name for figures in found for name in figures if name != "exits_per_second"))
        kinds = sorted({kind for figures in found for kind in figures.get("exits_per_second", {})})
        return [
            {
                "experiment": self.document["experiment"],
                "case": guest["case"],
                "variant": guest["variant"],
                "vm": guest["vm"],
                "measured": measured,
                **varied.get((guest["case"], guest["variant"]), {}),
                **{name: figures.get(name) for name in names},
                **{f"exits_per_second.{kind}": figures.get("exits_per_second", {}).get(kind) for kind in kinds},
            }
            for (guest, measured), figures in zip(guests, found, strict=True)
        ]

    def counters(self, *, background: bool = False) -> list[dict[str, Any]]:
        """Returns one row for each guest and counter: the mean over the runs."""
        return self._long("counters", "counter", "mean", background)

    def costs(self) -> list[dict[str, Any]]:
        """Returns one row for each unit: what its run cost the machine that it ran on."""
        return [
            {"id": record.id, "case": record.case, "variant": record.variant, "seed": record.seed, **record.cost}
            for record in self.records
        ]

    def _rows(self, table: str, background: bool, where: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        part = self.where(where)
        tables = {
            "samples": lambda: part.samples(),
            "lost_time": lambda: part.lost_time(background=background),
            "counters": lambda: part.counters(background=background),
            "operators": lambda: part.operators(background=background),
            "costs": lambda: part.costs(),
        }
        if table not in tables:
            raise ValueError(f"found the table {table!r}, expected one of {', '.join(tables)}")
        return tables[table]()

    def to_pandas(
        self, table: str = "samples", *, background: bool = False, where: Mapping[str, Any] | None = None
    ) -> Any:
        """Returns a tidy pandas frame of `samples`, `lost_time`, `counters`, `operators` or `costs`; provenance in `.attrs`.

        `where` chooses a part, as the method of that name does.
        """
        pandas = needed("pandas", "frames")
        frame = pandas.DataFrame(self._rows(table, background, where))
        frame.attrs.update(self.provenance)
        return frame

    def to_polars(
        self, table: str = "samples", *, background: bool = False, where: Mapping[str, Any] | None = None
    ) -> Any:
        """Returns the same as a polars frame, which has no place for provenance."""
        polars = needed("polars", "all")
        return polars.DataFrame(self._rows(table, background, where), infer_schema_length=None)

    def to_xarray(self, *, where: Mapping[str, Any] | None = None) -> Any:
        """Returns the samples as an xarray dataset over case, variant, vm, each swept key and seed.

        Swept keys are in numerical order, and names are without their values. Unit and provenance are in `.attrs`.
        """
        pandas = needed("pandas", "frames")
        needed("xarray", "all")
        part = self.where(where)
        keys = list(dict.fromkeys(step["key"] for case in part.document["cases"] for step in case.get("swept", [])))
        names, rows = ["case", "variant", "vm"], []
        values = ["value", "work_share", "preempted_spin_share", "convoy_share", "longest_stall_ns"]
        samples = iter(part.samples())
        for case in part.document["cases"]:
            steps = case.get("swept", [])
            base = {name: without(case[name], steps) or case[name] for name in names[:2]}
            swept = {column(step["key"]): number(step["value"]) for step in steps}
            for _ in case["samples"]:
                row = next(samples)
                figures = {name: row[name] for name in values}
                rows.append({**base, "vm": case["vm"], **swept, "seed": row["seed"], **figures})
        frame = pandas.DataFrame(rows)
        dims = [*names, *(column(key) for key in keys), "seed"]
        dataset = frame.set_index(dims)[values].astype("float64").to_xarray()
        for name in names:
            dataset = dataset.reindex({name: list(dict.fromkeys(row[name] for row in rows))})
        for key in dims[3:-1]:
            dataset = dataset.reindex({key: sorted(dict.fromkeys(row[key] for row in rows), key=in_order)})
        dataset.attrs.update({key: str(value) for key, value in self.provenance.items()})
        dataset["value"].attrs["units"] = self.provenance["unit"]
        return dataset

    def to_parquet(self, path: str | os.PathLike[str], table: str = "samples", *, background: bool = False) -> None:
        """Writes a tidy table as Parquet, with provenance in the schema's metadata."""
        pyarrow = needed("pyarrow", "all")
        needed("pyarrow.parquet", "all")
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
        self,
        other: Results | None = None,
        *,
        baseline: str | None = None,
        along: str | None = None,
        metric: str | None = None,
    ) -> Comparison:
        """Compares with other results, or the variants among each other, with the command's confidence intervals.

        `along` is a swept key: its values are compared with the first one, and the intervals are corrected for the
        number of comparisons. `metric` is `p50` or `p99`, the time of operations, in place of the experiment's metric.
        """
        words = ["compare"] + (["--baseline", baseline] if baseline is not None else [])
        words += ["--along", along] if along is not None else []
        words += ["--metric", metric] if metric is not None else []
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
        """Returns one row for each measured guest: mean, deviation, median, range, times of operations, convoys."""

        def mean(case: dict[str, Any], name: str) -> float | None:
            values = (case.get("service") or {}).get(name, [])
            return sum(values) / len(values) if values else None

        def named(case: dict[str, Any]) -> str:
            return f"mean {case['metric']}, {case['unit']}"

        # Guests can have different metrics.
        means = dict.fromkeys(named(case) for case in self.document["cases"])
        return [
            {
                "case": case["case"],
                "variant": case["variant"],
                "vm": case["vm"],
                **{name: case["mean"] if name == named(case) else None for name in means},
                "sd": case["sd"],
                "median": case["median"],
                "min": case["min"],
                "max": case["max"],
                **(
                    {"p50, ms": mean(case, "p50_ms"), "p99, ms": mean(case, "p99_ms")}
                    if any(other.get("service") for other in self.document["cases"])
                    else {}
                ),
                "convoys": f"{sum(convoy is not None for convoy in case['convoys'])} of {len(case['samples'])}",
            }
            for case in self.document["cases"]
        ]

    def __repr__(self) -> str:
        cases, seeds = self.document["cases"], self.document["seeds"]
        cells = len({(case["case"], case["variant"]) for case in cases})
        state = "" if self.complete else ", incomplete"
        failed = f", {len(self.failures)} runs failed" if self.failures else ""
        return f"Results({self.document['experiment']!r}, {cells} cells x {len(seeds)} seeds{state}{failed})"

    def __str__(self) -> str:
        title = f"{self.document['experiment']}: {self.document.get('title') or ''}"
        return f"{title}\n{self!r}\n\n{plain(self.summary())}"

    def _repr_html_(self) -> str:
        title = html.escape(f"{self.document['experiment']}: {self.document.get('title') or ''}")
        state = "" if self.complete else " <b>incomplete</b>"
        failed = f", {len(self.failures)} runs failed" if self.failures else ""
        foot = html.escape(f"scale {self.document['scale']:g}, version {self.document['version']}{failed}")
        return f"<p>{title}{state}</p>{_table(self.summary())}<p><small>{foot}</small></p>"


def plain(rows: Sequence[dict[str, Any]]) -> str:
    """Returns rows as a table of text."""
    if not rows:
        return "no rows"

    def shown(value: Any) -> str:
        if isinstance(value, float):
            return f"{value:.4g}"
        return "-" if value is None else str(value)

    heads = [key for key in rows[0] if any(row.get(key) is not None for row in rows)]
    lines = [heads, *([shown(row.get(key)) for key in heads] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    numbers = [all(isinstance(row.get(key), int | float | None) for row in rows) for key in heads]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numbers, strict=True)
        ).rstrip()
        for line in lines
    )


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
    shown["verdict"] = str(shown.pop("judgment", None) or "no samples").replace("-", " ")
    shown.pop("better", None)
    if shown.pop("same history", False):
        shown["verdict"] = "the same history"
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
