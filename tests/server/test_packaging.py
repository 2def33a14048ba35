"""Files around the server: a label that scanners accept, and a unit and a container that start the server."""

from __future__ import annotations

import base64
import configparser
import json
import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest

import upmri
from upmri.server.limits import Limits
from upmri.server.order import Order, parse_order

FOLDER = Path(__file__).parents[2] / "packaging"
LABEL = "com.siemens-healthineers.magneticresonance.openrecon.metadata:1.1.0"
# The rules of OpenRecon's labels, version 1.1.0, from its public schema: the required keys and their types.
REGULATORY = (
    "device_trade_name", "production_identifier", "manufacturer_address", "made_in", "manufacture_date",
    "material_number", "gtin", "udi", "safety_advices", "special_operating_instructions",
    "additional_relevant_information",
)  # fmt: skip
GENERAL = {"name", "version", "vendor", "information", "id", "regulatory_information"}
RECONSTRUCTION = {
    "transfer_protocol": dict, "port": int, "emitter": str, "injector": str, "can_use_gpu": bool,
    "min_required_memory": int, "min_count_required_cpu_cores": int,
}  # fmt: skip
OPTIONAL = {
    "can_process_adjustment_data": bool, "min_count_required_gpus": int, "min_required_gpu_memory": int,
    "content_qualification_type": str, "require_readout_filter_off": bool, "channel_compression": dict,
}  # fmt: skip
PARAMETERS = {
    "boolean": ({"type", "id", "label", "default"}, {"information"}),
    "string": ({"type", "id", "label"}, {"information", "default", "isLargeText"}),
    "choice": ({"type", "id", "label", "default", "values"}, {"information"}),
    "int": ({"type", "id", "label", "minimum", "maximum", "default"}, {"information", "unit"}),
    "double": ({"type", "id", "label", "minimum", "maximum", "default"}, {"information", "unit"}),
}


def wrong(label: dict[str, Any]) -> list[str]:
    """Return what the schema would find wrong with a label."""
    found = [f"keys {sorted(label)}"] if set(label) != {"general", "reconstruction", "parameters"} else []
    general, recon = label.get("general", {}), label.get("reconstruction", {})
    found += [f"general.{key}" for key in GENERAL ^ (set(general) - {"license_string"})]
    found += [f"general.{key}" for key in ("name", "information") if not is_text(general.get(key))]
    if not re.fullmatch(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", str(general.get("version"))):
        found.append("general.version")
    regulatory = general.get("regulatory_information", {})
    found += [f"regulatory.{key}" for key in set(REGULATORY) ^ set(regulatory)]
    found += [f"regulatory.{key}" for key, value in regulatory.items() if not isinstance(value, str)]
    found += [f"reconstruction.{key}" for key in set(recon) - set(RECONSTRUCTION) - set(OPTIONAL)]
    for key, kind in (RECONSTRUCTION | OPTIONAL).items():
        if (key in RECONSTRUCTION or key in recon) and type(recon.get(key)) is not kind:
            found.append(f"reconstruction.{key}")
    if recon.get("transfer_protocol") != {"protocol": "ISMRMRD", "version": "1.4.1"}:
        found.append("reconstruction.transfer_protocol")
    choices = {
        "emitter": ("raw", "image"), "injector": ("image", "compleximage"),
        "content_qualification_type": ("PRODUCT", "SERVICE", "RESEARCH"),
    }  # fmt: skip
    found += [f"reconstruction.{key}" for key, known in choices.items() if recon.get(key, known[0]) not in known]
    least = {"min_count_required_cpu_cores": 1, "min_required_memory": 0, "min_count_required_gpus": 0}
    found += [f"reconstruction.{key}" for key, low in least.items() if recon.get(key, low) < low]
    parameters = label.get("parameters", [])
    found += ["parameters"] if len(parameters) > 14 else []
    return found + [f"parameter {one.get('id')}" for one in parameters if not is_parameter(one)]


def is_text(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("en"), str)


def is_parameter(one: dict[str, Any]) -> bool:
    if one.get("type") not in PARAMETERS:
        return False
    needed, more = PARAMETERS[one["type"]]
    kinds = {"boolean": bool, "string": str, "choice": str, "int": int, "double": (int, float)}
    return (
        needed <= set(one) <= needed | more
        and re.fullmatch("[A-Za-z0-9]+", one["id"]) is not None
        and all(is_text(one[key]) for key in ("label", "information") if key in one)
        and isinstance(one.get("default", "" if one["type"] == "string" else None), kinds[one["type"]])
        and all(set(value) == {"id", "name"} and is_text(value["name"]) for value in one.get("values", []))
        and ("values" not in one or one["default"] in [value["id"] for value in one["values"]])
    )


@pytest.fixture
def label() -> dict[str, Any]:
    return json.loads((FOLDER / "openrecon.json").read_text())


def test_the_label_keeps_the_rules(label):
    assert wrong(label) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("general", "version"), "1.0"),
        (("general", "name"), "UPMRI"),
        (("general", "extra"), ""),
        (("general", "regulatory_information", "gtin"), 0),
        (("reconstruction", "port"), "9002"),
        (("reconstruction", "emitter"), "raww"),
        (("reconstruction", "can_use_gpu"), "true"),
        (("reconstruction", "min_count_required_cpu_cores"), 0),
        (("reconstruction", "transfer_protocol", "version"), "2"),
        (("parameters", 0, "id"), "under_score"),
        (("parameters", 0, "default"), "another"),
        (("parameters", 1, "default"), "false"),
        (("parameters", 1, "minimum"), 0),
    ],
)
def test_the_rules_can_be_broken(label, path, value):
    at = label
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    assert wrong(label)


def test_the_label_is_of_this_version_and_research(label):
    assert label["general"]["version"] == upmri.__version__
    assert label["reconstruction"]["content_qualification_type"] == "RESEARCH"
    assert "NOT FOR CLINICAL USE" in label["general"]["regulatory_information"]["safety_advices"]


def test_what_the_scanner_offers_is_what_the_server_takes(label):
    sent = {one["id"]: one["default"] for one in label["parameters"]}
    [choice] = [one for one in label["parameters"] if one["id"] == "config"]
    for value in choice["values"]:
        words = json.dumps({"version": "1.1.0", "parameters": sent | {"config": value["id"]}})
        order = parse_order(words, Order(method="sense"), upmri.methods(), Limits())
        assert order.method == value["id"]
        assert order.complex is False


def test_the_container_carries_the_label_and_starts_the_server(label):
    text = (FOLDER / "Dockerfile").read_text()
    assert f'LABEL "{LABEL}"="${{OPENRECON}}"' in text
    encoded = runpy.run_path(str(FOLDER / "label.py"))["encoded"]()
    assert json.loads(base64.b64decode(encoded)) == label
    command = json.loads(re.search(r"^CMD (\[.*\])$", text, re.MULTILINE)[1])
    assert command[:2] == ["upmri", "serve"]
    assert command[command.index("--port") + 1] == str(label["reconstruction"]["port"])
    assert command[command.index("--health-host") + 1] == "127.0.0.1"  # only the container itself needs it
    assert re.search(r"^USER upmri$", text, re.MULTILINE)
    for copied in re.search(r"^COPY (pyproject.*) \./$", text, re.MULTILINE)[1].split():
        assert (FOLDER.parent / copied).is_file()
    for copied, target in re.findall(r"^COPY (\w+) \./(\w+)$", text, re.MULTILINE):
        assert copied == target
        assert (FOLDER.parent / copied).is_dir()


def test_the_container_begins_with_an_image_that_cannot_change():
    text = (FOLDER / "Dockerfile").read_text()
    [image] = re.findall(r"^FROM (.*)$", text, re.MULTILINE)
    name = re.fullmatch(r"(python:3\.\d+-slim-\w+)@sha256:[0-9a-f]{64}", image)[1]
    assert f"imagetools inspect {name}" in text  # the way to renew it


def test_the_unit_starts_the_server_and_waits_for_streams():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(FOLDER / "upmri.service")
    service = unit["Service"]
    words = shlex.split(service["ExecStart"])
    assert words[1:5] == ["upmri", "serve", "--host", "127.0.0.1"]
    assert service["Type"] == "notify"
    limits = Limits()
    assert int(service["TimeoutStopSec"]) > limits.drain_seconds + 2 * limits.linger_seconds
