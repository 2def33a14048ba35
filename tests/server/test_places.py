"""Places for clients, with connections that only keep their error."""

from __future__ import annotations

import pytest

from upmri.server.limits import Limits, RefusedError
from upmri.server.places import Places


class Client:
    """A connection that keeps its error."""

    def __init__(self, number, peer="a"):
        self.number, self.peer, self.code = number, peer, None

    def fail(self, error):
        self.code = error.code


def test_streams_in_all_and_from_one_address():
    places = Places(Limits(clients=3, per_address=2))
    several = [Client(n, peer) for n, peer in enumerate("aaabc")]
    for one in several:
        places.enter(one)
    for one in several[:2]:
        places.take(one)
    with pytest.raises(RefusedError, match="per_address") as error:
        places.take(several[2])
    assert error.value.code == "limit:per_address"
    places.take(several[3])
    with pytest.raises(RefusedError) as error:
        places.take(several[4])
    assert error.value.code == "limit:clients"
    places.leave(several[0])
    places.take(several[4])


def test_the_oldest_without_a_header_gives_way_to_its_own_address():
    places = Places(Limits(clients=8, per_address=2))
    other, *several = [Client(0, "b"), *(Client(n) for n in range(1, 5))]
    for one in (other, *several):
        places.enter(one)
    codes = [one.code for one in several]
    assert codes == ["limit:per_address", "limit:per_address", None, None]
    assert other.code is None
    places.take(several[3])
    places.enter(Client(5))  # a stream with its header does not wait any more
    assert several[2].code is None


def test_there_is_an_end_to_waiting_from_many_addresses():
    places = Places(Limits(clients=2, per_address=1))
    several = [Client(n, str(n)) for n in range(5)]
    for one in several:
        places.enter(one)
    assert [one.code for one in several] == ["limit:clients", "limit:clients", None, None, None]
