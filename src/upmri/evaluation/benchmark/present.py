"""The results of one configuration among all in a database, which keeps those of earlier configurations, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from upmri.evaluation.benchmark.cases import Task
from upmri.evaluation.benchmark.store import Row, Store


def present_rows(store: Store, todo: Sequence[Task]) -> list[Row]:
    """Return the results of some scans, in an order that does not depend on when they were stored.

    Parameters
    ----------
    store
        The database.
    todo
        The scans of the configuration, all with different keys. ``row.scan`` is the key.
    """
    known = {store.name_of(task.key, task.origin): task for task in todo}
    rows = []
    for row in store.rows():
        if task := known.get(row.scan):
            # Who stands for a person is a setting, too.
            rows.append(replace(row, scan=task.key, group=task.group.name, person=task.slice.person))
    return sorted(rows, key=lambda row: (row.group, row.maps, row.acceleration, row.scan, row.variant))
