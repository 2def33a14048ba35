"""A progress bar with the remaining time, on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(label: str, total: int, *, shown: bool) -> Iterator[Callable[..., None]]:
    """Yield a function that advances the bar by one, and replaces its label if it is called with another.

    Without ``shown`` or a terminal there is no bar.
    """
    if not shown:  # needs no rich
        yield lambda _=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _=None: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda label=None: progress.update(task, advance=1, description=label)
