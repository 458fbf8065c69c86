"""Experiments: read, changed, checked, run."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._command import Command, needed
from .plan import Plan, Unit
from .trace import Trace

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = needed("tomli", "all")

if TYPE_CHECKING:
    from .results import Results


def experiment(source: str | os.PathLike[str] | Mapping[str, Any], *, command: Command | None = None) -> Experiment:
    """Returns an experiment: a shipped one by its name, a TOML file by its path, TOML text, or a mapping."""
    command = command or Command.find()
    if isinstance(source, Mapping):
        return Experiment(_toml(dict(source)), "-", command)
    text = os.fspath(source)
    if "\n" in text:
        return Experiment(text, "-", command)
    if text.endswith(".toml") or isinstance(source, os.PathLike):
        return Experiment(Path(text).read_text(encoding="utf-8"), text, command)
    return Experiment(command.run(["show", text]), text, command)


@dataclass(frozen=True)
class Experiment:
    """An experiment with changes. Each method that changes it returns a new one."""

    text: str = field(repr=False)
    """The TOML text without the changes."""
    target: str
    """Its name, its file, or `-` for text without a file."""
    command: Command = field(repr=False)
    seeds: int | None = None
    scale: float | None = None
    first_seed: int | None = None
    until_ci: float | None = None
    seeds_max: int | None = None
    cases: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()
    sweeps: tuple[tuple[str, tuple[Any, ...]], ...] = ()

    def sized(
        self,
        *,
        seeds: int | None = None,
        scale: float | None = None,
        first_seed: int | None = None,
        until_ci: float | None = None,
        seeds_max: int | None = None,
    ) -> Experiment:
        """Sets the runs of each cell, and the share of the full-size work.

        `until_ci=5` adds seeds to each cell until the 95 % confidence interval of its mean reaches at most 5 % above it,
        or `seeds_max` are spent.
        """
        return dataclasses.replace(
            self,
            seeds=self.seeds if seeds is None else seeds,
            scale=self.scale if scale is None else scale,
            first_seed=self.first_seed if first_seed is None else first_seed,
            until_ci=self.until_ci if until_ci is None else until_ci,
            seeds_max=self.seeds_max if seeds_max is None else seeds_max,
        )

    def only(self, *, case: str | Sequence[str] = (), variant: str | Sequence[str] = ()) -> Experiment:
        """Selects cases and variants."""
        return dataclasses.replace(self, cases=self.cases + _names(case), variants=self.variants + _names(variant))

    def set(self, keys: Mapping[str, Any] | None = None, /, **guest: Any) -> Experiment:
        """Sets keys for all cells: `.set({"host.hz": 250}, lock="tas")`. A keyword is a key of all guests."""
        return dataclasses.replace(self, settings=self.settings + tuple(_keys(keys, guest).items()))

    def sweep(self, keys: Mapping[str, Any] | None = None, /, **guest: Any) -> Experiment:
        """Runs each case with each of several values: `.sweep(lock=["tas", "ticket"], vcpus=[8, 16])`.

        Text or a number is one value.
        """
        added = tuple((key, _several(values)) for key, values in _keys(keys, guest).items())
        return dataclasses.replace(self, sweeps=self.sweeps + added)

    def arguments(self) -> list[str]:
        """Returns the arguments of the command that stand for the changes."""
        words: list[str] = []
        amounts: dict[str, float | None] = {
            "--seeds": self.seeds,
            "--scale": self.scale,
            "--first-seed": self.first_seed,
            "--seeds-max": self.seeds_max,
        }
        for option, amount in amounts.items():
            if amount is not None:
                words += [option, str(amount)]
        if self.until_ci is not None:
            words += ["--until-ci", f"{self.until_ci}%"]
        for option, names in (("--case", self.cases), ("--variant", self.variants)):
            for name in names:
                words += [option, name]
        for key, value in self.settings:
            words += ["--set", f"{key}={_value(value)}"]
        for key, values in self.sweeps:
            words += ["--sweep", f"{key}={','.join(_quoted(value) for value in values)}"]
        return words

    def to_dict(self) -> dict[str, Any]:
        """Returns the definition as a mapping, with the changes."""
        whole = tomllib.loads(self.text)
        for key, value in (("seeds", self.seeds), ("scale", self.scale)):
            if value is not None:
                whole[key] = value
        if self.settings:
            # The layer of the variants is the uppermost one.
            for variant in whole.setdefault("variants", [{"name": "default"}]):
                variant["set"] = {**variant.get("set", {}), **dict(self.settings)}
        if self.sweeps:
            sweeps = [{"key": key, "values": list(values)} for key, values in self.sweeps]
            whole["sweeps"] = whole.get("sweeps", []) + sweeps
        return whole

    def to_toml(self) -> str:
        """Returns the definition as TOML: the text itself if nothing was changed."""
        if self == dataclasses.replace(self, seeds=None, scale=None, settings=(), sweeps=()):
            return self.text
        return _toml(self.to_dict())

    def check(self) -> None:
        """Raises HoldfastError with all mistakes, each at its file, line and key."""
        self.plan()

    def plan(self, *, cache: str | os.PathLike[str] | None = None) -> Plan:
        """Returns the units. A `cache` predicts their cost.

        With `until_ci` these are the units of the rounds so far, as the cache has them, and of the next one.

        Raises HoldfastError with all mistakes.
        """
        arguments = ["plan", self.target, *self.arguments(), "--format", "jsonl"]
        if cache is not None:
            arguments += ["--cache", os.fspath(cache)]
        lines = self.command.run(arguments, self.text if self.target == "-" else None).splitlines()
        return Plan(self.command, lines[0], [Unit.of(line) for line in lines[1:]])

    def better(self) -> str:
        """Returns which values of the metric are better: `lower` or `higher`."""
        stated = self.to_dict()
        default = "lower" if stated.get("metric", "elapsed") == "elapsed" else "higher"
        return str(stated.get("better", default))

    def search(self, space: Callable[[Any], dict[str, Any]], **arguments: Any) -> Any:
        """Searches for the best settings with Optuna. `holdfast.search.search` describes the arguments."""
        from .search import search

        return search(self, space, **arguments)

    def trace(
        self,
        path: str | os.PathLike[str],
        *,
        case: str | None = None,
        variant: str | None = None,
        seed: int = 1,
        begin: str | None = None,
        span: str | None = None,
    ) -> Trace:
        """Records the timeline of one run in the file `path`.

        `begin` and `span` are times as in `"1.5 s"`; without them 60 ms from just before the first convoy, if there is
        one. A sweep has no timeline: set its keys.
        """
        if self.sweeps:
            raise ValueError("found a sweep, expected one run: use set() instead of sweep()")
        words = ["trace", self.target, "--seed", str(seed), "--out", os.fspath(path), "--format", "json"]
        options = {"--case": case, "--variant": variant, "--from": begin, "--for": span, "--scale": self.scale}
        for option, value in options.items():
            if value is not None:
                words += [option, str(value)]
        for key, value in self.settings:
            words += ["--set", f"{key}={_value(value)}"]
        printed = self.command.run(words, self.text if self.target == "-" else None)
        return Trace(Path(path), json.loads(printed))

    def run(
        self,
        executor: Any = None,
        *,
        cache: str | os.PathLike[str] | None = None,
        chunks: int | None = None,
        jobs: int | None = None,
        retries: int = 2,
        progress: Callable[[int, int], None] | None = None,
        command: str | None = None,
    ) -> Results:
        """Runs all units and returns the results. `Plan.run` describes the arguments.

        With `until_ci` it runs round after round, and `progress` counts within each. Workers on other machines then
        need a `cache`. Raises RunsFailed if no run gave a result.
        """
        arguments: dict[str, Any] = {
            "chunks": chunks,
            "jobs": jobs,
            "retries": retries,
            "progress": progress,
            "command": command,
        }
        if self.until_ci is None:
            return self.plan(cache=cache).run(executor, cache=cache, **arguments)
        with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
            kept = folder if cache is None else cache
            before: list[Unit] = []
            while True:
                plan = self.plan(cache=kept)
                left = [unit for unit in plan.units if not unit.cached]
                # Units that a round left without a record would be left by the next one too.
                if not left or left == before:
                    return plan.run(cache=kept, command=command)
                dataclasses.replace(plan, units=left).records(executor, cache=kept, **arguments)
                before = left


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _keys(keys: Mapping[str, Any] | None, guest: Mapping[str, Any]) -> dict[str, Any]:
    return {**(keys or {}), **{f"guest.{name}": value for name, value in guest.items()}}


def _several(values: Any) -> tuple[Any, ...]:
    """Returns the values of a key; text and numbers are one value."""
    return tuple(values) if isinstance(values, Iterable) and not isinstance(values, str | bytes) else (values,)


def _toml(definition: dict[str, Any]) -> str:
    return str(needed("tomli_w", "all").dumps(definition))


def _quoted(value: Any) -> str:
    """Returns a value as an option with several values takes it."""
    text = _value(value)
    return json.dumps(text) if isinstance(value, str) and any(letter in text for letter in ",[]{}\"'") else text


def _value(value: Any) -> str:
    """Returns a value as an option takes it."""
    if isinstance(value, str):
        return value
    return json.dumps(value)
