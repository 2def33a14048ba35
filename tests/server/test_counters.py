import socket
import urllib.error
import urllib.request

import pytest

from upmri.server.counters import Door, Metrics


@pytest.fixture
def door():
    state = {"ready": True}
    metrics = Metrics()
    made = Door(socket.create_server(("127.0.0.1", 0)), metrics, lambda: state)
    made.state, made.metrics = state, metrics
    yield made
    made.close()


def get(door, path):
    return urllib.request.urlopen(f"http://127.0.0.1:{door.address[1]}{path}", timeout=10)


def test_prometheus_reads_it(door):
    door.metrics.add("streams_refused_total", code="limit:coils")
    door.metrics.add("streams_refused_total", 2, code="data")
    door.metrics.put("worker_ready", 1)
    with get(door, "/metrics") as answer:
        text = answer.read().decode()
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = text.splitlines()
    assert 'upmri_streams_refused_total{code="limit:coils"} 1' in lines
    assert 'upmri_streams_refused_total{code="data"} 2' in lines
    assert "upmri_worker_ready 1" in lines
    assert "upmri_images_total 0" in lines
    for line in lines:
        assert line.startswith("# ") or len(line.rsplit(" ", 1)) == 2


def test_health_follows_the_state(door):
    with get(door, "/health") as answer:
        assert answer.status == 200
    door.state["ready"] = False
    with pytest.raises(urllib.error.HTTPError) as caught, get(door, "/health"):
        pass
    with caught.value:
        assert caught.value.code == 503


def test_who_says_nothing_or_nonsense_keeps_nobody_waiting_for_long(door):
    with socket.create_connection(door.address), socket.create_connection(door.address) as rude:
        rude.sendall(b"\0" * 9000)
        with get(door, "/health") as answer:
            assert answer.status == 200


def test_counts():
    metrics = Metrics()
    metrics.add("images_total")
    metrics.add("images_total", 2)
    assert metrics.get("images_total") == 3
    assert metrics.get("streams_total") == 0
