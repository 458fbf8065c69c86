"""Accounts of recordings of real hosts."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any

from ._command import Command, needed

_TABLES = ("figures", "behind", "exits", "wakers", "ipis", "kicks", "cpus", "threads")


@dataclass(frozen=True)
class Account:
    """Where the time of the virtual machines of a recorded host went."""

    document: dict[str, Any] = field(repr=False, hash=False)
    """The document that `holdfast import --format json` prints."""

    @property
    def sentence(self) -> str:
        """The most important thing that it says."""
        return str(self.document["sentence"])

    def rows(self, table: str = "figures") -> list[dict[str, Any]]:
        """Returns the rows of a table.

        `figures` has a row for each figure of each VM (`vcpu` is None) and of each vCPU, with its value, its basis
        (`known`, `inferred` or `unknown`) and the reason. `behind`, `exits`, `wakers`, `ipis` and `kicks` have rows of each
        VM, `cpus` and `threads` of the host.
        """
        if table not in _TABLES:
            raise ValueError(f"found the table {table!r}, expected one of {', '.join(_TABLES)}")
        if table in ("cpus", "threads"):
            return [dict(row) for row in self.document[table]]
        vms = self.document["vms"]
        if table != "figures":
            return [{"vm": vm["name"], "process": vm["process"], **row} for vm in vms for row in vm[table]]
        rows = []
        for vm in vms:
            owner = {"vm": vm["name"], "process": vm["process"]}
            rows += [{**owner, "vcpu": None, "thread": None, **figure} for figure in vm["figures"]]
            for vcpu in vm["vcpus"]:
                one = {**owner, "vcpu": vcpu["number"], "thread": vcpu["thread"]}
                rows += [{**one, **figure} for figure in vcpu["figures"]]
        return rows

    def to_pandas(self, table: str = "figures") -> Any:
        """Returns a table as a pandas frame. `rows` describes the tables."""
        return needed("pandas", "frames").DataFrame(self.rows(table))

    def to_polars(self, table: str = "figures") -> Any:
        """Returns a table as a polars frame. `rows` describes the tables."""
        return needed("polars", "frames").DataFrame(self.rows(table), infer_schema_length=None)


def recording(*files: str | os.PathLike[str], command: Command | None = None) -> Account:
    """Reads a recording, and the files that explain it, as `holdfast import` does."""
    paths = [os.fspath(file) for file in files]
    command = command or Command.find()
    return Account(json.loads(command.run(["import", *paths, "--format", "json"])))
