"""Frames have what the JSON has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import holdfast


def test_samples_equal_the_document(results: holdfast.Results) -> None:
    pytest.importorskip("pandas")
    frame = results.to_pandas()
    assert len(frame) == 8
    for case in results.document["cases"]:
        rows = frame[(frame.case == case["case"]) & (frame.variant == case["variant"]) & (frame.vm == case["vm"])]
        assert list(rows["value"]) == case["samples"]
        assert list(rows["seed"]) == case["seeds"]
        assert list(rows["history_hash"]) == case["history_hashes"]
        assert list(rows["work_share"]) == case["work_shares"]
    assert frame.attrs["unit"] == "s" and frame.attrs["version"] == results.document["version"]
    # The swept key is a column, under the name that all its guests share.
    assert set(frame["vm.*.spin_threshold"]) == {1024, 2048}
    assert "vm.*.lock" in frame.columns


def test_lost_time_and_counters_equal_the_document(results: holdfast.Results) -> None:
    pytest.importorskip("pandas")
    for table, name, value, key in [("lost_time", "cause", "share", "lost_time"), ("counters", "counter", "mean", "counters")]:
        frame = results.to_pandas(table)
        for case in results.document["cases"]:
            rows = frame[(frame.case == case["case"]) & (frame.variant == case["variant"]) & (frame.vm == case["vm"])]
            assert dict(zip(rows[name], rows[value], strict=True)) == case[key]
    shares = results.to_pandas("lost_time").groupby(["case", "variant", "vm"])["share"].sum()
    assert ((shares - 1).abs() < 1e-9).all()
    assert len(results.to_pandas("costs")) == 8


def test_what_operators_measure_has_a_row_for_each_guest(results: holdfast.Results) -> None:
    pytest.importorskip("pandas")
    frame = results.to_pandas("operators")
    cases = results.document["cases"]
    assert list(frame["ready_percent"]) == [case["operators"]["ready_percent"] for case in cases]
    assert list(frame["vm"]) == [case["vm"] for case in cases]
    assert any(name.startswith("exits_per_second.") for name in frame.columns)


MIXED = """
name = "mixed"
title = "guests whose users ask different questions"
metric = "own"
seeds = 2
scale = 0.001
[[vm]]
name = "db"
vcpus = 2
workload = "pgbench"
work = 10
[[vm]]
name = "builder"
vcpus = 2
workload = "kernbench"
[[variants]]
name = "as it is"
[[variants]]
name = "tickets"
set = { "vm.*.lock" = "ticket" }
"""


def test_each_guest_has_the_metric_of_its_users(tmp_path: Path) -> None:
    path = tmp_path / "mixed.toml"
    path.write_text(MIXED, encoding="utf-8")
    results = holdfast.experiment(path).run()
    for row in results.samples():
        if row["vm"] == "db":
            assert row["unit"] == "transactions/s" and row["rate"] == row["value"]
            assert 0 < row["p50_ms"] <= row["p99_ms"]
        else:
            assert row["unit"] == "s" and row["rate"] is row["p99_ms"] is None
    for row in results.summary():
        shown = [row["mean throughput, transactions/s"], row["mean elapsed, s"], row["p99, ms"]]
        assert [value is None for value in shown] == ([False, True, False] if row["vm"] == "db" else [True, False, True])
    compared = results.compare(metric="p99")
    assert {row["vm"] for row in compared.rows} == {"db"} and compared.rows[0]["unit"] == "ms"


def test_values_of_a_sweep_are_what_they_are_elsewhere() -> None:
    base = holdfast.experiment("kernbench-overcommit").only(case="1x")
    lists = base.sweep({"vm.*.affinity": ["0-1,3", [2, 3]]}).arguments()
    assert lists[-1] == 'vm.*.affinity="0-1,3",[2, 3]'
    assert base.sweep(spin_threshold="1024").arguments()[-1] == "guest.spin_threshold=1024"


def test_polars_and_xarray_have_the_same_values(results: holdfast.Results) -> None:
    pytest.importorskip("polars")
    pytest.importorskip("xarray")
    frame = results.to_pandas()
    assert results.to_polars()["value"].to_list() == list(frame["value"])
    data = results.to_xarray()
    assert data["value"].dims == ("case", "variant", "vm", "vm.*.spin_threshold", "seed")
    assert list(data["case"].values) == ["1x"], "names are without the values of swept keys"
    for row in results.samples():
        swept = {"vm.*.spin_threshold": row["vm.*.spin_threshold"]}
        at = data["value"].sel(case="1x", variant=row["variant"], vm=row["vm"], seed=row["seed"], **swept)
        assert float(at) == row["value"]
    assert data["value"].attrs["units"] == "s" and data.attrs["experiment"] == "kernbench-overcommit"


def test_parquet_has_the_same_rows(results: holdfast.Results, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for table in ("samples", "lost_time", "counters", "operators", "costs"):
        results.to_parquet(tmp_path / "t.parquet", table)
        read = parquet.read_table(tmp_path / "t.parquet")
        assert json.dumps(read.to_pylist()) == json.dumps(results._rows(table, False))
        assert read.schema.metadata[b"holdfast.experiment"] == b"kernbench-overcommit"


def test_a_written_file_is_read_again(results: holdfast.Results, tmp_path: Path) -> None:
    path = results.write(tmp_path)
    again = holdfast.read(path)
    assert again.text == results.text
    assert [row["value"] for row in again.samples()] == [row["value"] for row in results.samples()]


def test_comparison_and_explanation_are_the_command_s(results: holdfast.Results) -> None:
    compared = results.compare()
    assert len(compared.rows) == 2
    assert compared.document["schema"].startswith("holdfast.comparison/")
    assert results.compare(results).rows
    assert results.explain()["schema"].startswith("holdfast.explanation/")


def test_html_is_escaped_and_whole(results: holdfast.Results) -> None:
    text = results._repr_html_()
    assert text.count("<tr>") == 1 + len(results.document["cases"])
    compared = results.compare()._repr_html_()
    assert "95 % interval" in compared and "{" not in compared, "no column is a dict"
    document = dict(results.document, title="<script>")
    assert "<script>" not in holdfast.Results(json.dumps(document), results.command)._repr_html_()


def test_pictures(results: holdfast.Results, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for picture in (results.plot.samples(), results.plot.lost_time(), results.plot.curve("vm.*.spin_threshold", log=True)):
        assert "<svg" in picture._repr_html_()
        picture.save(tmp_path / "picture.pdf")
    assert results.plot.samples().svg() == results.plot.samples().svg(), "no date, no random names"
    with pytest.raises(KeyError, match="guest.spin_threshold"):
        results.plot.curve("host.hz")


@pytest.fixture(scope="module")
def grid() -> holdfast.Results:
    base = holdfast.experiment("kernbench-overcommit").sized(seeds=2, scale=0.001).only(case=["1x", "2x"])
    return base.sweep({"host.hz": [250, 100]}, spin_threshold=[4096, 1024]).run()


def test_curves_have_a_line_for_each_case_variant_and_guest(grid: holdfast.Results) -> None:
    pytest.importorskip("matplotlib")
    document = grid.compare(along="host.hz").document
    drawn = grid.plot.curve("host.hz").figure.axes[0].containers
    assert len(drawn) == len(document["curves"]) == 2 * 2 * 2
    for line, curve in zip(drawn, document["curves"], strict=True):
        points = {point["value"]: point for point in curve["points"]}
        xs, ys = line.lines[0].get_data()
        assert list(xs) == [100, 250], "from left to right"
        assert list(ys) == [points["100"]["mean"], points["250"]["mean"]]
        assert {"guest.spin_threshold"} == set(curve["others"])


def test_xarray_has_a_dimension_for_each_swept_key_in_numerical_order(grid: holdfast.Results) -> None:
    pytest.importorskip("xarray")
    data = grid.to_xarray()
    assert data["value"].dims == ("case", "variant", "vm", "host.hz", "vm.*.spin_threshold", "seed")
    assert list(data["host.hz"].values) == [100, 250]
    assert list(data["vm.*.spin_threshold"].values) == [1024, 4096]
    assert list(data["case"].values) == ["1x", "2x"] and not data["value"].isnull().any()


def test_a_part_of_results_is_chosen_by_its_columns(grid: holdfast.Results) -> None:
    pytest.importorskip("pandas")
    frame = grid.to_pandas()
    part = grid.to_pandas(where={"case": "2x", "host.hz": 250, "guest.spin_threshold": [1024]})
    chosen = frame[frame.case.str.startswith("2x") & (frame["host.hz"] == 250) & (frame["vm.*.spin_threshold"] == 1024)]
    assert list(part["value"]) == list(chosen["value"]) and len(part) == 4
    with pytest.raises(KeyError, match="expected one of case, variant, vm, .*host.hz"):
        grid.where({"host.hx": 1})
    with pytest.raises(ValueError, match="found no guest of variant='tas'"):
        grid.where({"variant": "tas"})
    # Results from a file know the swept keys.
    again = holdfast.Results(grid.text, grid.command)
    assert again.where({"host.hz": 100}).samples() == [row for row in again.samples() if row["host.hz"] == 100]
    assert len(again.compare().rows) == 2 * len(again.where({"case": "1x"}).compare().rows)


def test_every_guest_has_a_column_for_a_key_that_differs(ten: holdfast.Results) -> None:
    pytest.importorskip("pandas")
    frame = ten.to_pandas()
    guests = ["db", "builder-1", "builder-2", "builder-3"]
    # Set for one guest, for all guests, and for none.
    assert [list(frame.groupby(f"vm.{vm}.shares").groups) for vm in guests] == [[1024, 4096], [1024], [1024], [1024]]
    assert all(frame[f"vm.{vm}.{key}"].notna().all() for vm in guests for key in ("lock", "shares", "affinity"))
    assert len(frame.groupby("vm.db.lock").groups) == 2 and sum(frame.groupby("vm.db.lock").size()) == len(frame)
    assert list(frame["vm.*.lock"]) == list(frame["vm.db.lock"]), "all guests agree"
    assert "vm.*.shares" not in frame.columns, "they do not"


def test_variants_by_guests_are_the_command_s(ten: holdfast.Results, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    compared = ten.compare()
    matrix = compared.document["matrix"]
    assert matrix["guests"] == ["db", "3 x builder"] and len(matrix["rows"]) == 9
    assert compared.verdict.startswith('Against "as it is": ') and compared.verdict in str(compared)
    frame = compared.matrix()
    assert list(frame.columns) == ["all guests", "db", "3 x builder"] and len(frame) == 9
    picture = ten.plot.matrix()
    picture.save(tmp_path / "matrix.svg")
    shown = [text.get_text() for text in picture.figure.axes[0].texts]
    assert len(shown) == 27
    assert len(ten.plot.matrix(where={"vm": "db"}).figure.axes[0].texts) == 9


def test_printed_results_have_a_row_for_each_guest(ten: holdfast.Results) -> None:
    lines = str(ten).splitlines()
    assert lines[0].startswith("ten: ") and repr(ten) == lines[1] == "Results('ten', 10 cells x 2 seeds)"
    assert len(lines) == 3 + 1 + 40 and all(len(line) <= 100 for line in lines)


@pytest.fixture(scope="module")
def cube() -> holdfast.Results:
    base = holdfast.experiment("kernbench-overcommit").sized(seeds=1, scale=0.0005).only(case="1x")
    return base.sweep({"host.hz": [100, 250, 1000]}, spin_threshold=[1024, 2048, 4096, 8192], vcpus=[2, 4]).run()


def test_numbers_are_not_sorted_by_their_digits(cube: holdfast.Results) -> None:
    pytest.importorskip("xarray")
    assert list(cube.to_xarray()["host.hz"].values) == [100, 250, 1000]


def test_curves_of_three_keys_are_in_panels(cube: holdfast.Results) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = cube.plot.curve("host.hz").figure
    FigureCanvasAgg(figure).draw()
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert len(panels) > 1 and all(len(axes.containers) <= 8 for axes in panels)
    assert sum(len(axes.containers) for axes in panels) == 2 * 4 * 2
    assert len({axes.get_title() for axes in panels}) == len(panels)
    [legend] = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert len(labels) == len(set(labels)) <= 8
    shown = [axes.get_window_extent() for axes in panels]
    assert not any(box.overlaps(legend.get_window_extent()) for box in shown)


def test_a_heat_map_is_of_one_guest(grid: holdfast.Results) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match="expected one guest"):
        grid.plot.heat_map("host.hz", "guest.spin_threshold")
    picture = grid.plot.heat_map("host.hz", "vm.*.spin_threshold", case="2x", variant="ticket")
    [image] = picture.figure.axes[0].images
    curves = grid.compare(along="guest.spin_threshold").document["curves"]
    curves = [line for line in curves if line["case"].startswith("2x") and line["variant"] == "ticket"]
    assert image.get_array().tolist() == [[point["mean"] for point in line["points"]] for line in curves]
    low, high = image.get_clim()
    assert high >= 1.1 * low, "small differences have weak colors"
    with pytest.raises(KeyError, match="guest.spin_threshold"):
        grid.plot.heat_map("host.slice", "host.hz")


def test_wide_intervals_have_a_logarithmic_axis(grid: holdfast.Results) -> None:
    pytest.importorskip("matplotlib")
    # Intervals of two seeds are wide, and would hide the means on another axis.
    axes = grid.plot.curve("host.hz").figure.axes[0]
    curves = grid.compare(along="host.hz").document["curves"]
    ends = [end for line in curves for point in line["points"] for end in point["interval"]]
    assert max(ends) > 12 * min(ends) and axes.get_yscale() == "log"


def test_no_two_labels_of_a_picture_overlap(grid: holdfast.Results) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    for picture in (grid.plot.samples(), grid.plot.lost_time(), grid.plot.curve("host.hz")):
        FigureCanvasAgg(picture.figure).draw()
        for axis in (picture.figure.axes[0].xaxis, picture.figure.axes[0].yaxis):
            labels = [label for label in axis.get_ticklabels() if label.get_text() and label.get_rotation() == 0]
            boxes = [label.get_window_extent() for label in labels]
            assert not any(box.overlaps(other) for box, other in zip(boxes, boxes[1:]))


def test_interactive_charts_have_every_sample(results: holdfast.Results) -> None:
    pytest.importorskip("altair")
    chart = results.plot.interactive().to_dict()
    [data] = chart["datasets"].values()
    cases = list(dict.fromkeys(case["case"] for case in results.document["cases"]))
    variants = list(dict.fromkeys(case["variant"] for case in results.document["cases"]))
    orders = [chart["encoding"][channel]["sort"] for channel in ("x", "xOffset", "color")]
    assert orders == [cases, variants, variants], "the order of the document"
    assert sorted(row["value"] for row in data) == sorted(row["value"] for row in results.samples())
