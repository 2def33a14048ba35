"""Small results, and how to read them back from a page."""

import json
import re

import numpy as np
import pytest
import torch

import upmri
from upmri.core.scan import Reconstruction
from upmri.evaluation.report.encode import unpack


def results(slices=3, height=24, width=40, samples=4):
    g = torch.Generator().manual_seed(0)
    ramp = torch.linspace(0, 1, width).expand(slices, height, width)
    x0 = (0.2 + ramp) * torch.exp(2j * ramp)

    def noisy(strength):
        return x0 + strength * torch.randn(slices, height, width, dtype=torch.complex64, generator=g)

    drawn = torch.stack([noisy(0.02) for _ in range(samples)])
    common = {"reference": x0, "name": "apple", "spacing": (1.0, 2.0, 3.0)}
    return [
        Reconstruction(image=noisy(0.1), method="sense", settings={"damping": 0.01}, seconds=1.5, **common),
        Reconstruction(
            image=drawn.mean(0), samples=drawn, std=drawn.abs().std(0), method="upmri",
            settings={"model": "/home/somebody/brain.safetensors", "sha256": "ab" * 32, "steps": None},
            versions={"upmri": "0.0.1", "torch": "2.0"}, **common
        ),
    ]  # fmt: skip


def scan_of(shape=(3, 24, 40)):
    g = torch.Generator().manual_seed(1)
    kspace = torch.randn(shape[0], 2, *shape[1:], dtype=torch.complex64, generator=g)
    mask = torch.zeros(shape[2], dtype=torch.bool)
    mask[::2] = True
    return upmri.Scan(kspace=kspace * mask, mask=mask, noise=0.25)


def study_of(page):
    return json.loads(re.search(r'<script type="application/json" id="study">(.*?)</script>', page, re.S)[1])


def values_of(page, array):
    study = study_of(page)
    array_facts, shape = study["arrays"][array], (study["height"], study["width"])
    planes = []
    for index in range(study["slices"]):
        text = re.search(rf'<script type="application/octet-stream" id="{array}/{index}">(.*?)</script>', page)[1]
        planes.append(
            array_facts["offset"] + array_facts["step"] * unpack(text, shape, array_facts["bits"]).astype(float)
        )
    return np.stack(planes)


@pytest.fixture(name="results")
def _results():
    """``results(slices, height, width, samples)``: two reconstructions of one scan, the second with samples."""
    return results


@pytest.fixture(name="scan_of")
def _scan_of():
    """``scan_of(shape)``: a scan of noise with every second line."""
    return scan_of


@pytest.fixture(name="study_of")
def _study_of():
    """``study_of(page)``: the JSON of a page."""
    return study_of


@pytest.fixture(name="values_of")
def _values_of():
    """``values_of(page, array)``: the values of an array of a page, (slice, H, W)."""
    return values_of
