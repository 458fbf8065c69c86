"""Plans as units, and their execution by any executor."""

from __future__ import annotations

import heapq
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._command import Command, HoldfastError

if TYPE_CHECKING:
    from .results import Results


@dataclass(frozen=True)
class Unit:
    """One run: a cell with a seed."""

    id: str
    """Hash of all parameters, the build and the schema; and the seed."""
    case: str
    variant: str
    seed: int
    parameters: dict[str, Any] = field(repr=False, hash=False)
    """The values of all keys."""
    predicted_s: float | None = None
    """Predicted CPU time in seconds."""
    cached: bool = False
    """Whether the cache has its record."""
    line: str = field(default="", repr=False, compare=False)
    """The unit as the command reads it, without the parameters: workers take these from the plan."""

    @staticmethod
    def of(line: str) -> Unit:
        """Reads a line of a plan."""
        unit = json.loads(line)
        lean = {key: value for key, value in unit.items() if key != "parameters"}
        return Unit(
            id=unit["id"],
            case=unit["case"],
            variant=unit["variant"],
            seed=unit["seed"],
            parameters=unit["parameters"],
            predicted_s=unit["predicted_s"],
            cached=unit["cached"],
            line=json.dumps(lean, separators=(",", ":")),
        )


@dataclass(frozen=True)
class Record:
    """A finished unit: what its run found, and what it cost."""

    id: str
    case: str
    variant: str
    seed: int
    parameters: dict[str, Any] = field(repr=False, hash=False)
    outcome: dict[str, Any] | None = field(repr=False, hash=False)
    """What the run found, or `None` if it failed."""
    failure: str | None
    """Why the run failed."""
    cost: dict[str, Any] = field(hash=False)
    """Wall and CPU time in seconds, peak memory in bytes."""
    line: str = field(default="", repr=False, compare=False)

    @staticmethod
    def of(line: str) -> Record:
        """Reads a line of records. The command checks its checksum when records are merged."""
        record = json.loads(line)
        keys = ("id", "case", "variant", "seed", "parameters", "outcome", "failure", "cost")
        return Record(**{key: record[key] for key in keys}, line=line)


class RunsFailed(HoldfastError):
    """All runs failed. The message has the first failure."""

    def __init__(self, results: Results) -> None:
        first = results.failures[0]
        place = f"case {first['case']}, variant {first['variant']}, seed {first['seed']}"
        super().__init__(
            f"all {len(results.failures)} runs failed; {place}: {first['error']}\nreplay: {first['replay']}", 1, ["run"]
        )
        self.results = results
        """The results, which have nothing but the failures."""


def work(command: str, header: str, units: Sequence[str], jobs: int, cache: str | None) -> str:
    """Runs units in a process of the command, and returns their records. Executors call this on their workers."""
    arguments = ["run", "--units", "-", "--jobs", str(jobs)]
    if cache is not None:
        arguments += ["--cache", cache]
    # A failed run has a record too.
    text = Command(command).run(arguments, "\n".join([header, *units]) + "\n", allowed=(0, 1))
    _, _, records = text.partition("\n")
    if len(records.splitlines()) < len(set(units)):
        raise RuntimeError(f"{len(units)} units gave {len(records.splitlines())} records")
    return records


@dataclass(frozen=True)
class Plan:
    """The units of an experiment."""

    command: Command
    header: str = field(repr=False)
    """The line of the plan, from which any process makes the plan again."""
    units: list[Unit]

    def __len__(self) -> int:
        return len(self.units)

    def chunks(self, count: int) -> list[list[Unit]]:
        """Divides the units into at most `count` chunks of about equal predicted cost, the longest units first."""
        known = [unit.predicted_s for unit in self.units if unit.predicted_s is not None]
        mean = sum(known) / len(known) if known else 1.0
        costs = {unit.id: mean if unit.predicted_s is None else unit.predicted_s for unit in self.units}
        ordered = sorted(self.units, key=lambda unit: (-costs[unit.id], unit.id))
        chunks: list[list[Unit]] = [[] for _ in range(max(1, min(count, len(ordered))))]
        loads = [(0.0, 0, index) for index in range(len(chunks))]
        for unit in ordered:
            load, length, index = heapq.heappop(loads)
            chunks[index].append(unit)
            heapq.heappush(loads, (load + costs[unit.id], length + 1, index))
        return [chunk for chunk in chunks if chunk]

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
        """Runs all units and merges their records.

        `executor`: any `concurrent.futures.Executor`, a Dask client, or `None` for one process of the command on this
        machine. `cache`: a folder for records, which all workers see. `chunks`: number of tasks. `jobs`: runs at the same
        time in one task; with an executor 1. `retries`: how often a chunk of a lost worker is tried again. `progress` is
        called with the number of finished units and of all units. `command`: path of the command on the workers.
        """
        texts = self.records(
            executor, cache=cache, chunks=chunks, jobs=jobs, retries=retries, progress=progress, command=command
        )
        return self.merge(texts)

    def records(
        self,
        executor: Any = None,
        *,
        cache: str | os.PathLike[str] | None = None,
        chunks: int | None = None,
        jobs: int | None = None,
        retries: int = 2,
        progress: Callable[[int, int], None] | None = None,
        command: str | None = None,
    ) -> list[str]:
        """Runs all units and returns texts of their records, which `merge` takes. `run` describes the arguments."""
        folder = None if cache is None else os.fspath(Path(cache).absolute())
        path = command or self.command.path
        if executor is None:
            runs = jobs or os.cpu_count() or 1
            texts = [work(path, self.header, [unit.line for unit in self.units], runs, folder)]
            if progress is not None:
                progress(len(self.units), len(self.units))
            return texts
        tasks = chunks or max(1, min(len(self.units), 8 * _workers(executor)))
        return self._spread(_as_executor(executor), tasks, path, folder, jobs or 1, retries, progress)

    def _spread(
        self,
        executor: Executor,
        tasks: int,
        path: str,
        cache: str | None,
        jobs: int,
        retries: int,
        progress: Callable[[int, int], None] | None,
    ) -> list[str]:
        left: dict[Future[str], tuple[list[Unit], int]] = {}

        def submit(chunk: list[Unit], tries: int) -> None:
            future = executor.submit(work, path, self.header, [unit.line for unit in chunk], jobs, cache)
            left[future] = (chunk, tries)

        for chunk in self.chunks(tasks):
            submit(chunk, 0)
        texts: list[str] = []
        finished = 0
        try:
            while left:
                done, _ = wait(list(left), return_when=FIRST_COMPLETED)
                for future in done:
                    chunk, tries = left.pop(future)
                    try:
                        texts.append(future.result())
                    except HoldfastError as error:
                        # Bad input stays bad. A signal that ended the process is the loss of a worker.
                        if error.status == 2 or tries >= retries:
                            raise
                        submit(chunk, tries + 1)
                        continue
                    except Exception:
                        if tries >= retries:
                            raise
                        submit(chunk, tries + 1)
                        continue
                    finished += len(chunk)
                    if progress is not None:
                        progress(finished, len(self.units))
        finally:
            for future in left:
                future.cancel()
        return texts

    def merge(self, records: Iterable[str], *, mixed_builds: bool = False) -> Results:
        """Merges texts of records into results, the same bytes as one run of the command gives.

        Raises RunsFailed if no run gave a result.
        """
        from .results import Results

        with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
            path = Path(folder) / "records.jsonl"
            with path.open("w", encoding="utf-8") as file:
                file.write(self.header + "\n")
                for text in records:
                    file.write(text if text.endswith("\n") or not text else text + "\n")
            arguments = ["merge", str(path), "--format", "json"] + (["--mixed-builds"] if mixed_builds else [])
            # Failed runs are in the results.
            text = self.command.run(arguments, allowed=(0, 1))
            merged = [line for line in path.read_text(encoding="utf-8").splitlines()[1:] if '"holdfast.record/1"' in line]
        results = Results(text, self.command, records=[Record.of(line) for line in merged], units=self.units)
        if results.failures and not any(case["samples"] for case in results.document["cases"]):
            raise RunsFailed(results)
        return results


def _as_executor(executor: Any) -> Executor:
    """Returns an executor for `executor`, which may be a Dask client."""
    if hasattr(executor, "get_executor"):
        made: Executor = executor.get_executor(pure=False)
        return made
    if not hasattr(executor, "submit"):
        raise TypeError(f"found {executor!r}, expected a concurrent.futures.Executor or a Dask client")
    own: Executor = executor
    return own


def _workers(executor: Any) -> int:
    """Returns the number of workers, as far as an executor tells."""
    if hasattr(executor, "nthreads"):
        return max(1, int(sum(executor.nthreads().values())))
    return int(getattr(executor, "_max_workers", None) or os.cpu_count() or 1)
