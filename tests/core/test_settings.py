import dataclasses
import math
import os
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upmri.core.checks import at_least, in_range
from upmri.core.errors import InputError
from upmri.core.settings import build, read_mapping


@dataclass(frozen=True)
class Law:
    location: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        in_range(self, scale=(0.1, 10))


@dataclass(frozen=True)
class Split:
    loss: tuple[float, float] = (0.0, 1.0)
    laws: tuple[Law, ...] = ()
    by_name: dict[str, Law] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Group:
    name: str
    split: Split | None = None


@dataclass(frozen=True)
class Plan:
    output: str
    group: Group
    steps: int = 1
    rate: float = 0.5
    flips: bool = True
    kind: Literal["a", "b"] = "a"
    limit: int | None = None
    groups: tuple[Group, ...] = ()
    counts: tuple[int, ...] = ()
    extra: dict[Any, Any] = field(default_factory=dict)
    anything: Any = None

    def __post_init__(self) -> None:
        at_least(self, 1, "steps")


LEAST = {"output": "o", "group": {"name": "x"}}


def test_all_kinds_of_fields():
    plan = build(
        Plan,
        LEAST
        | {
            "steps": 3,
            "rate": 2,
            "flips": False,
            "kind": "b",
            "limit": 4,
            "groups": [{"name": "a", "split": {"loss": [0, 0.5], "laws": [{}, {"scale": 2}]}}, {"name": "b"}],
            "counts": [1, 2],
            "extra": {4: 30, "x": [1]},
            "anything": {"deep": [1, (2,)]},
        },
    )
    split = Split(loss=(0.0, 0.5), laws=(Law(), Law(scale=2.0)))
    assert plan == Plan(
        "o", Group(name="x"), 3, 2.0, False, "b", 4, (Group(name="a", split=split), Group(name="b")), (1, 2),
        {4: 30, "x": [1]}, {"deep": [1, (2,)]},
    )  # fmt: skip
    assert type(plan.rate) is float
    assert type(plan.groups[0].split.loss) is tuple
    assert build(Plan, LEAST) == Plan("o", Group(name="x"))


def test_instances_are_kept():
    group, law = Group(name="a"), Law(scale=3.0)
    plan = Plan("o", group)
    assert build(Plan, plan) is plan
    built = build(Plan, {"output": "o", "group": group, "groups": [group, {"name": "b"}], "anything": law})
    assert built.group is built.groups[0] is group
    assert built.anything is law


@given(
    st.builds(
        Plan,
        output=st.text(),
        group=st.builds(Group, name=st.text(), split=st.none() | st.just(Split(laws=(Law(),)))),
        steps=st.integers(1),
        rate=st.floats(allow_nan=False),
        limit=st.none() | st.integers(),
        counts=st.lists(st.integers()).map(tuple),
        extra=st.dictionaries(st.integers() | st.text(), st.integers()),
    )
)
def test_a_dataclass_is_built_back_from_its_values(plan):
    assert build(Plan, dataclasses.asdict(plan)) == plan


@pytest.mark.parametrize("number", [math.inf, -math.inf, 1e308])
def test_infinity_is_a_number(number):
    assert build(Plan, LEAST | {"rate": number}).rate == number
    assert math.isnan(build(Plan, LEAST | {"rate": math.nan}).rate)


WRONG = [
    ({"steps": "3"}, "steps", "expected a whole number, got '3'"),
    ({"steps": 3.0}, "steps", "expected a whole number, got 3.0"),
    ({"steps": True}, "steps", "expected a whole number, got True"),
    ({"rate": "0.5"}, "rate", "expected a number, got '0.5'"),
    ({"rate": True}, "rate", "expected a number, got True"),
    ({"rate": None}, "rate", "expected a number, got None"),
    ({"flips": 1}, "flips", "expected true or false, got 1"),
    ({"output": 3}, "output", "expected text, got 3"),
    ({"output": b"x"}, "output", "expected text, got b'x'"),
    ({"output": Path("x")}, "output", f"expected text, got {Path('x')!r}"),
    ({"kind": "c"}, "kind", "expected 'a' or 'b', got 'c'"),
    ({"limit": "all"}, "limit", "expected a whole number, got 'all'"),
    ({"groups": {"name": "a"}}, "groups", "expected a list, got {'name': 'a'}"),
    ({"counts": "12"}, "counts", "expected a list, got '12'"),
    ({"counts": [1, 2.5]}, "counts[1]", "expected a whole number, got 2.5"),
    ({"extra": [1]}, "extra", "expected keys and values, got [1]"),
    ({"group": 5}, "group", "expected keys and values, got 5"),
    ({"group": None}, "group", "expected keys and values, got None"),
    ({"group": {}}, "group.name", "missing"),
    ({"group": {"nam": "x"}}, "group.nam", "unknown; expected one of name, split"),
    ({"group": {"name": "x", "split": {"x": 1}}}, "group.split.x", "unknown; expected one of loss, laws, by_name"),
    ({"group": {"name": "x", "split": {"loss": [0]}}}, "group.split.loss", "expected at least 2 values, got [0]"),
    ({"group": {"name": "x", "split": {"loss": [0, 1, 2]}}}, "group.split.loss", "expected 2 values, got [0, 1, 2]"),
    ({"group": {"name": "x", "split": {"loss": [0, "b"]}}}, "group.split.loss[1]", "expected a number, got 'b'"),
    ({"groups": [{"name": "x"}, {"name": "y", "z": 1}]}, "groups[1].z", "unknown; expected one of name, split"),
    ({"stepz": 1}, "stepz", None),
    ({"steps": 0}, "steps", "expected at least 1, got 0"),
    (
        {"groups": [{"name": "x", "split": {"laws": [{"scale": 11}]}}]},
        "groups[0].split.laws[0].scale",
        "expected 0.1 to 10, got 11.0",
    ),
    (
        {"group": {"name": "x", "split": {"by_name": {"k": {"z": 1}}}}},
        "group.split.by_name.k.z",
        "unknown; expected one of location, scale",
    ),
]


@pytest.mark.parametrize(("change", "place", "message"), WRONG, ids=[f"{place}-{m}" for _, place, m in WRONG])
def test_a_wrong_value_is_named(change, place, message):
    for name in ("", "plan"):
        with pytest.raises(InputError) as error:
            build(Plan, LEAST | change, name)
        assert error.value.field == (f"{name}.{place}" if name else place)
        assert message is None or error.value.message == message


def test_the_whole_value_may_be_wrong():
    with pytest.raises(InputError) as error:
        build(Plan, [1], "plan")
    assert error.value.field == "plan"
    with pytest.raises(InputError) as error:
        build(Plan, 3)
    assert error.value.field is None
    with pytest.raises(InputError) as error:
        build(Plan, LEAST | {3: 4}, "plan")
    assert error.value.field == "plan[3]"


def test_a_long_value_is_shortened():
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (deep, "x" * 10**6, {str(i): i for i in range(1000)}):
        with pytest.raises(InputError) as error:
            build(Plan, LEAST | {"steps": value})
        assert len(str(error.value)) < 200


def test_an_error_of_the_dataclass_is_the_cause():
    with pytest.raises(InputError) as error:
        build(Law, {"scale": 0}, "law")
    assert error.value.field == "law.scale"
    with pytest.raises(InputError) as error:  # without pydantic
        Law(scale=0)
    assert error.value.field == "scale"


@pytest.mark.parametrize(
    ("change", "result"),
    [
        ("a=3", {"a": 3, "b": {"c": {"d": 1}}}),
        ("b.c.d = 1e-3", {"b": {"c": {"d": 1e-3}}}),
        ("b.c={e: 2}", {"b": {"c": {"e": 2}}}),
        ("b.x.y=[1]", {"b": {"c": {"d": 1}, "x": {"y": [1]}}}),
        ("b.c.d=", {"b": {"c": {"d": None}}}),
        ("lesson.split.told=1", {"b": {"c": {"d": 1}}, "objective": {"split": {"path": 1}}}),
    ],
)
def test_changes(change, result):
    source = {"b": {"c": {"d": 1}}}
    assert read_mapping(source, (change,)) == result
    assert source == {"b": {"c": {"d": 1}}}


@pytest.mark.parametrize("change", ["a", "a.b=3", "b=[", "b=!!python/name:os.system"])
def test_changes_that_make_no_sense(change):
    with pytest.raises(InputError) as error:
        read_mapping({"a": 1}, (change,))
    assert error.value.field == "--set"


def test_dataclasses_need_neither_pydantic_nor_yaml(fresh):
    """Training and evaluation run where only torch, numpy and safetensors are installed."""
    code = """
        import sys
        for name in ("pydantic", "pydantic_core", "yaml"):
            sys.modules[name] = None
        import upmri.core.settings
        from upmri.core.errors import InputError
        from upmri.evaluation.benchmark.plan import Entry, Group
        from upmri.training.config import DataConfig, TrainConfig, read_config
        config = TrainConfig(output="run", train=DataConfig(coils=4), objective={"width": 4})
        assert read_config(config) is config
        assert upmri.core.settings.build(DataConfig, config.train, "train") is config.train
        Group(name="a", images=("b",)), Entry("sense")
        try:
            TrainConfig(output="run", train=DataConfig(), steps=0)
        except InputError as error:
            print(config.train.coils, error.field)
    """
    done = fresh(textwrap.dedent(code))
    assert done.stdout == "4 steps\n", done.stderr


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{key}: &{key} [{', '.join(['*' + before] * 10)}]\n" for before, key in zip("abcdefghi", "bcdefghij", strict=True)
)

MERGED = "a: &a {x: 1}\n" + BOMB.partition("\n")[2].replace("[", "{<<: [").replace("]", "]}")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (BOMB, "aliases"),
        (
            BOMB.replace("[", "{<<: [").replace("]", "]}").replace("{<<: [x, x, x, x, x, x, x, x, x, x]}", "{x: 1}"),
            "aliases",
        ),
        (f"a: &a {'x' * 10**5}\nb: [{', '.join(['*a'] * 1000)}]", "aliases"),
        ("a: &a [*a]", "an alias"),
        ("a: &a {b: {c: *a}}", "an alias"),
        ("x: " + "[" * 5000, "recursion"),
        ("x: !!bool maybe", "maybe"),
        ("x: !!int ''", "not YAML"),
        ("x: !!timestamp y", "not YAML"),
        ("#" * 2**18 + "\nx: 1", "262144 bytes"),
    ],
)
def test_yaml_takes_no_more_time_and_memory_than_its_length_allows(tmp_path, text, word):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=word) as error:
        read_mapping(path)
    assert error.value.path == str(path)
    if word == "aliases":
        with pytest.raises(InputError, match=word) as error:
            read_mapping({}, (f"x={{{', '.join(text.splitlines())}}}",))
        assert error.value.field == "--set"


def test_aliases_are_read(tmp_path):
    (tmp_path / "x.yaml").write_text("a: &a {x: 1}\nb: [*a, *a]\nc: {<<: *a, y: 2}\n")
    assert read_mapping(tmp_path / "x.yaml") == {"a": {"x": 1}, "b": [{"x": 1}, {"x": 1}], "c": {"x": 1, "y": 2}}


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    for name in ("pipe.yaml", "zero.yaml", "."):
        (tmp_path / "x.yaml").write_text(f"base: {name}")
        for path in (tmp_path / name, tmp_path / "x.yaml"):
            with pytest.raises(InputError, match="expected a file") as error:
                read_mapping(path)
            assert error.value.path == str(tmp_path / name)


def test_a_file_based_on_itself_by_a_longer_way_is_refused(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "x.yaml").write_text("base: sub/../x.yaml")
    with pytest.raises(InputError, match="in a row") as error:
        read_mapping(tmp_path / "x.yaml")
    assert error.value.field == "base"
