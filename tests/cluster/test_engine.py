"""One process for each device: what is done again when one of them is killed."""

from collections import deque
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool

import pytest

from upmri.cluster.engine import LOSSES, Call, OnDevices
from upmri.cluster.perform import FileTask, Outcome


class Together(OnDevices):
    """Two calls begin together; a deadly one ends both, as the processes of a pool end together."""

    def __init__(self, deadly):
        super().__init__(["cpu", "cpu"])
        self.deadly, self.begun = deadly, []

    def _run(self, queue, flying):
        while queue:
            for _ in range(min(2, len(queue))):
                flying[Future()] = queue.popleft()
            names = [call.task.name for call in flying.values()]
            self.begun.append(names)
            if self.deadly & set(names):
                raise BrokenProcessPool
            for future in list(flying):
                call = flying.pop(future)
                yield call, Outcome(call.task.name, "done")


@pytest.mark.parametrize("deadly", [set(), {"0"}, {"1"}, {"0", "1"}, {"2"}])
def test_only_calls_that_end_their_own_processes_are_given_up(deadly):
    calls = deque(Call(None, FileTask(name, (f"{name}.npy",), f"{name}.nii.gz"), "", "") for name in "012")
    engine = Together(deadly)
    outcomes = {call.task.name: outcome.state for call, outcome in engine.run(calls)}
    assert outcomes == {name: "bad" if name in deadly else "done" for name in "012"}
    for name in deadly:
        assert engine.begun.count([name]) == LOSSES + 1
