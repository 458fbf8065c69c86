"""Execution: whatever runs the units, the bytes are those of one run of the command."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

import holdfast


def test_one_process(results: holdfast.Results, expected: str) -> None:
    assert results.text == expected
    assert results.complete and not results.failures


@pytest.mark.parametrize("chunks", [1, 3, 8, 100])
def test_threads_in_any_number_of_chunks(small: holdfast.Experiment, expected: str, chunks: int) -> None:
    seen = []
    with ThreadPoolExecutor(2) as pool:
        ran = small.run(pool, chunks=chunks, progress=lambda done, all_: seen.append((done, all_)))
    assert ran.text == expected
    assert seen[-1] == (8, 8) and len(seen) == min(chunks, 8)


def test_processes(small: holdfast.Experiment, expected: str) -> None:
    with ProcessPoolExecutor(2) as pool:
        assert small.run(pool).text == expected


def test_a_cache_saves_all_runs(small: holdfast.Experiment, expected: str, tmp_path: Path) -> None:
    first = small.run(cache=tmp_path, jobs=2)
    plan = small.plan(cache=tmp_path)
    assert all(unit.cached and unit.predicted_s is not None for unit in plan.units)
    again = small.run(cache=tmp_path)
    assert first.text == again.text == expected
    assert again.costs() == first.costs() or sorted(map(str, again.costs())) == sorted(map(str, first.costs()))


def test_seeds_are_added_until_intervals_are_narrow(small: holdfast.Experiment, tmp_path: Path) -> None:
    adaptive = small.sized(until_ci=1, seeds_max=12)
    expected = small.command.run(["run", adaptive.target, *adaptive.arguments(), "--format", "json"])
    with ThreadPoolExecutor(2) as pool:
        results = adaptive.run(pool, cache=tmp_path)
    assert results.text == expected
    assert len(results.samples()) > len(small.run(cache=tmp_path).samples()) and len(results.records) > 8
    assert adaptive.run().text == expected, "without a cache"


class Flaky(Executor):
    """An executor whose first two tasks are lost."""

    def __init__(self) -> None:
        self.lost = 0
        self.pool = ThreadPoolExecutor(2)

    def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        if self.lost < 2:
            self.lost += 1
            future: Future[str] = Future()
            future.set_exception(ConnectionError("worker lost"))
            return future
        return self.pool.submit(fn, *args, **kwargs)


def test_lost_tasks_are_tried_again(small: holdfast.Experiment, expected: str) -> None:
    assert small.run(Flaky(), chunks=4).text == expected
    with pytest.raises(ConnectionError):
        small.run(Flaky(), chunks=4, retries=0)


def test_a_killed_command_is_tried_again(small: holdfast.Experiment, tmp_path: Path, expected: str) -> None:
    # The first call of this command kills itself in the middle of its work.
    script = tmp_path / "holdfast"
    mark = tmp_path / "killed"
    script.write_text(
        f'#!/bin/sh\nif mkdir {mark} 2>/dev/null; then "{small.command.path}" "$@" & sleep 0.05; kill -9 $!; kill -9 $$; fi\n'
        f'exec "{small.command.path}" "$@"\n'
    )
    script.chmod(0o755)
    with ThreadPoolExecutor(2) as pool:
        assert small.run(pool, chunks=2, command=str(script)).text == expected
    assert mark.is_dir()


def test_dask_and_a_killed_worker(small: holdfast.Experiment, expected: str, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    try:
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=str(tmp_path)
        )
    except (OSError, TimeoutError, RuntimeError) as error:
        pytest.skip(f"no local cluster starts here: {error}")
    with cluster, distributed.Client(cluster) as client:
        assert small.run(client).text == expected
        larger = small.sized(seeds=20)
        plain = larger.run(jobs=2)
        pids = list(client.run(os.getpid).values())
        killer = threading.Timer(0.2, os.kill, (pids[0], signal.SIGKILL))
        killer.start()
        assert larger.run(client, chunks=40, cache=tmp_path / "cache").text == plain.text
        killer.join()


def test_submit_gives_the_shards_to_dask(
    small: holdfast.Experiment, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    where = ["--engine", "dask", "--shards", "3", "--out", str(tmp_path)]
    small.command.run(["submit", small.target, *small.arguments(), *where])
    assert (tmp_path / "kernbench-overcommit.results.json").read_text(encoding="utf-8") == expected
    assert len(list((tmp_path / "logs").iterdir())) == 3


def test_mistakes_have_a_place() -> None:
    text = 'name = "mine"\ntitle = "one guest"\nmetric = "elapsed"\n\n[[vm]]\nname = "build"\nwrkload = "kernbench"\n'
    with pytest.raises(holdfast.HoldfastError) as raised:
        holdfast.experiment(text).check()
    [problem] = raised.value.problems
    assert (problem.file, problem.line, problem.key) == ("-", 7, "vm.0.wrkload")
    assert "did you mean `vm.*.workload`?" in problem.message
    assert raised.value.status == 2


def test_an_experiment_round_trips(small: holdfast.Experiment) -> None:
    assert holdfast.experiment(small.text).to_toml() == small.text
    changed = holdfast.experiment(small.to_toml())
    assert changed.to_dict() == small.to_dict()
    # Sweep and settings in the file have the cells and the identities of the same as options.
    plan = small.set({"host.hz": 250}).plan()
    written = holdfast.experiment(small.set({"host.hz": 250}).to_toml()).only(case="1x").plan()
    assert Counter(unit.id for unit in plan.units) == Counter(unit.id for unit in written.units)


def test_a_mapping_is_an_experiment() -> None:
    made = holdfast.experiment(
        {
            "name": "mine",
            "title": "one guest",
            "metric": "elapsed",
            "seeds": 1,
            "scale": 0.001,
            "vm": [{"name": "build", "vcpus": 2, "workload": "kernbench"}],
        }
    )
    results = made.run()
    assert results.document["experiment"] == "mine"
    assert len(results.samples()) == 1


def test_foreign_records_are_refused(small: holdfast.Experiment, results: holdfast.Results) -> None:
    plan = small.plan()
    line = results.records[0].line
    with pytest.raises(holdfast.HoldfastError, match="does not match its checksum"):
        plan.merge([line.replace('"wall_s":', '"wall_s":1')])
    with pytest.raises(holdfast.HoldfastError, match="expected a record of a unit of the plan"):
        holdfast.experiment("boot-64").plan().merge([line])


def test_runs_that_all_fail_are_an_error(small: holdfast.Experiment) -> None:
    hopeless = small.set({"limit": "1 us"})
    with pytest.raises(holdfast.RunsFailed, match="all 8 runs failed; case 1x .*\nreplay: holdfast run ") as failed:
        hopeless.run()
    assert len(failed.value.results.failures) == 8


def test_text_is_one_value_of_a_sweep(small: holdfast.Experiment) -> None:
    assert small.sweep(lock="tas").sweeps[-1] == ("guest.lock", ("tas",))
    assert small.sweep({"host.hz": 250}).sweeps[-1] == ("host.hz", (250,))
    assert len(holdfast.experiment("kernbench-overcommit").only(case="1x").sweep(spin_threshold="1024").plan()) == 10


def test_errors_name_the_arguments_of_this_package(small: holdfast.Experiment) -> None:
    with pytest.raises(holdfast.HoldfastError, match=r"^case=: found"):
        small.only(case="9x").plan()
    with pytest.raises(holdfast.HoldfastError) as refused:
        small.sized(scale=7).plan()
    assert "--" not in str(refused.value) and "scale" in str(refused.value)


def test_a_checkout_without_the_command_says_how_to_build_it(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    for name in ("python/src", "cli"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copytree(root / "python/src/holdfast", tmp_path / "python/src/holdfast", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "python/pyproject.toml", tmp_path / "python")
    environment = {key: value for key, value in os.environ.items() if key not in ("HOLDFAST_BINARY", "PYTHONPATH")}
    environment |= {"PYTHONPATH": str(tmp_path / "python/src"), "PATH": "/usr/bin"}
    find = "import holdfast; print(holdfast.Command.find().path)"
    ran = subprocess.run([sys.executable, "-c", find], env=environment, capture_output=True, text=True, check=False)
    if ran.returncode == 0:
        pytest.skip("a holdfast is installed here")
    assert "build it by `cargo build --release` in" in ran.stderr
    built = tmp_path / "target/release/holdfast"
    built.parent.mkdir(parents=True)
    built.touch()
    ran = subprocess.run([sys.executable, "-c", find], env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == str(built)


def test_a_missing_library_is_named_with_what_installs_it() -> None:
    from holdfast._command import needed

    with pytest.raises(ImportError, match="pip install no_such_library, or the wheel with its extra, 'holdfast\\[plots\\]'"):
        needed("no_such_library.part", "plots")
