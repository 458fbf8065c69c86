"""Timelines of single runs."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._command import needed


@dataclass(frozen=True)
class Trace:
    """The timeline of one run, in Perfetto's format. Drop the file on https://ui.perfetto.dev to look at it."""

    path: Path
    """The file."""
    description: dict[str, Any] = field(repr=False, hash=False)
    """The document that `holdfast trace --format json` prints."""

    def processor(self, **arguments: Any) -> Any:
        """Opens the timeline in Perfetto's trace processor.

        The package `perfetto` downloads the program when it is first used. Where it cannot, give
        `config=TraceProcessorConfig(bin_path=...)`.
        """
        processor = needed("perfetto.trace_processor", "traces").TraceProcessor
        return processor(trace=str(self.path), **arguments)

    def query(self, sql: str, **arguments: Any) -> Any:
        """Returns the rows of an SQL query as a pandas frame. `processor` describes the arguments."""
        with self.processor(**arguments) as processor:
            return processor.query(sql).as_pandas_dataframe()

    def _repr_html_(self) -> str:
        shown = html.escape(str(self.path))
        return f"<p>timeline <code>{shown}</code>, for <code>ui.perfetto.dev</code></p>"
