"""Faults of the slices of a scan: one warning each, numbers that count through the whole scan."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch

import upmri
from upmri.inference.findings import Findings
from upmri.physics.quality import Notes, repair


@pytest.fixture(scope="module")
def scan():
    """Coil 2 is dead in the first slice; the third slice is empty."""
    good = upmri.simulate(upmri.demo.brain()[[0, 1, 2, 0]], coils=4, acceleration=2, noise=0.01)
    kspace = good.kspace.clone()
    kspace[0, 2] = 0
    kspace[2] = 0
    return upmri.Scan(kspace=kspace, maps=good.maps)


def check(findings, *scans):
    """Note what is wrong with some scans, and return them repaired."""
    repaired = [repair(scan) for scan in scans]
    for scan, notes in repaired:
        findings.note(len(scan), notes)
    return [scan for scan, _ in repaired]


@pytest.mark.parametrize("step", [1, 2, 4])
def test_slices_alone_or_together(scan, step):
    findings = Findings()
    with pytest.warns(UserWarning, match="^coil 2 is dead in slice 0; left out wherever this is so$") as caught:
        parts = check(findings, *(scan[i : i + step] for i in range(0, 4, step)))
    assert len(caught) == 1
    with pytest.warns(UserWarning, match="^nothing was sampled in slice 2; the image is 0 there$"):
        findings.warn_of_empty()
    assert findings.settings == {"empty_slices": [2], "left_out_coils": [2]}
    assert torch.equal(torch.cat([part.kspace for part in parts]), scan.kspace)


def test_a_coil_and_maps_are_named_once(scan):
    findings = Findings()
    wrong = replace(scan[0], maps=2 * scan.maps[:1])
    with warnings.catch_warnings(record=True, action="always") as caught:
        check(findings, wrong)
    maps, coil = (str(warning.message) for warning in caught)
    assert maps.endswith("of 1 in the object, found 2 to 2 in slice 0; they are normalised")
    assert coil.startswith("coil 2 is dead")
    check(findings, wrong)  # a second warning would be an error
    assert findings.settings == {"left_out_coils": [2], "normalised_maps": [0, 1]}


def test_a_good_scan_has_no_findings(scan):
    findings = Findings()
    with warnings.catch_warnings(action="error"):
        check(findings, scan[1])
        findings.warn_of_empty()
    assert findings.settings == {}


def test_many_coils_with_one_fault_are_named_together():
    findings = Findings()
    with pytest.warns(UserWarning, match="^coil 1 is noisy, coils 0, 4 and 7 are dead in slice 0; left out"):
        findings.note(1, Notes(left_out={0: {1: "noisy", 0: "dead", 4: "dead", 7: "dead"}}))
