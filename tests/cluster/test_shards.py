"""Shards: all tasks are in one of them, and Slurm's numbers may begin anywhere."""

import pytest

from upmri.cluster.shards import of_shard, parse_shard
from upmri.core.errors import InputError


def slurm(task, count, first, step=None):
    values = {"ID": task, "COUNT": count, "MIN": first} | ({} if step is None else {"STEP": step})
    return {f"SLURM_ARRAY_TASK_{key}": str(value) for key, value in values.items()}


def test_every_item_is_in_one_shard():
    items = list(range(11))
    parts = [of_shard(items, number, 4) for number in range(1, 5)]
    assert sorted(item for part in parts for item in part) == items
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(
    ("variables", "expected"),
    [(slurm(0, 10, 0), (1, 10)), (slurm(10, 10, 1), (10, 10)), (slurm(90, 10, 0, 10), (10, 10))],
)
def test_slurm(variables, expected):
    assert parse_shard("auto", variables) == expected


@pytest.mark.parametrize("text", ["", "0/3", "4/3", "1/0", "-1/3", "1", "1/3/4", "a/b"])
def test_wrong_shards(text):
    with pytest.raises(InputError, match="--shard"):
        parse_shard(text)


def test_auto_needs_slurm():
    with pytest.raises(InputError, match="SLURM_ARRAY_TASK_ID"):
        parse_shard("auto", {"SLURM_ARRAY_TASK_ID": "1"})
