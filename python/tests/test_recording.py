"""Accounts of recordings have what the JSON has."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast

# Two VMs with one vCPU each take turns on one pCPU, 3 ms and 1 ms.
_SWITCH = (
    "{prev} {prev_pid}/{prev_tid} [000] {at:.9f}: sched:sched_switch: prev_comm={prev} prev_pid={prev_tid} prev_prio=120 "
    "prev_state=R ==> next_comm={next} next_pid={next_tid} next_prio=120"
)


def _text() -> str:
    lines = []
    at, running, other = 10.0, 4001, 5001
    for _ in range(100):
        words = {"prev": "CPU 0/KVM", "next": "CPU 0/KVM", "prev_tid": running, "next_tid": other, "at": at}
        lines.append(_SWITCH.format(prev_pid=running - 1, **words))
        at += 0.003 if other == 4001 else 0.001
        running, other = other, running
    return "\n".join(lines) + "\n"


def test_figures_have_a_row_for_each_vm_and_vcpu(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    file = tmp_path / "trace.txt"
    file.write_text(_text(), encoding="utf-8")
    account = holdfast.recording(file)
    assert account.sentence.startswith("vm 5000: 7")
    frame = account.to_pandas()
    ready = frame[frame.name == "ready_percent"].set_index(["vm", "vcpu"])["value"]
    assert ready.loc[("vm 5000", 0)] == pytest.approx(75, abs=1.5)
    unknown = frame[frame.basis == "unknown"]
    assert unknown["value"].isna().all() and (unknown["why"] != "").all()
    behind = account.to_pandas("behind")
    assert set(behind[behind.vm == "vm 5000"]["name"]) == {"vm 4000"}
    with pytest.raises(ValueError, match="expected one of figures"):
        account.rows("nothing")


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "empty"
    file.write_bytes(b"")
    with pytest.raises(holdfast.HoldfastError, match="empty file"):
        holdfast.recording(file)
