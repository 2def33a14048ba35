import threading

from upmri.server.counters import Counters


def test_counts_and_gauges():
    counters = Counters()
    counters.add("images_total")
    counters.add("images_total", 2)
    counters.put("workers_ready", 1)
    counters.put("workers_ready", 0)
    assert counters.get("images_total") == 3
    assert counters.get("workers_ready") == 0
    assert counters.get("streams_total") == 0


def test_the_text_format_of_prometheus():
    counters = Counters()
    counters.add("streams_refused_total", code="limit:coils")
    counters.add("streams_refused_total", 2, code="data")
    counters.put("workers_ready", 1)
    lines = counters.prometheus().splitlines()
    assert 'upmri_streams_refused_total{code="limit:coils"} 1' in lines
    assert 'upmri_streams_refused_total{code="data"} 2' in lines
    assert "upmri_workers_ready 1" in lines
    assert "upmri_images_total 0" in lines
    assert lines.index("# TYPE upmri_workers_ready gauge") < lines.index("upmri_workers_ready 1")
    for line in lines:
        assert line.startswith("# ") or len(line.rsplit(" ", 1)) == 2


def test_several_threads_count_together():
    counters = Counters()

    def count():
        for _ in range(1000):
            counters.add("images_total")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters.get("images_total") == 4000
