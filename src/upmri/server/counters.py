"""Numbers that the server counts, in the text format of Prometheus."""

from __future__ import annotations

import threading

_ABOUT = {
    "streams_total": ("counter", "Streams that were accepted."),
    "streams_done_total": ("counter", "Streams that ended with all their images."),
    "streams_refused_total": ("counter", "Streams that were refused or failed, by code."),
    "streams_open": ("gauge", "Streams that are open."),
    "images_total": ("counter", "Images that were sent."),
    "bytes_in_total": ("counter", "Bytes received."),
    "bytes_out_total": ("counter", "Bytes sent."),
    "frames_waiting": ("gauge", "Complete frames that wait for a worker."),
    "frames_working": ("gauge", "Frames that are being reconstructed."),
    "frame_seconds_total": ("counter", "Seconds that workers spent on frames."),
    "worker_starts_total": ("counter", "Starts of a worker."),
    "workers_ready": ("gauge", "Workers that can take a frame."),
    "log_lost_total": ("counter", "Lines of the log that could not be written."),
}


class Counters:
    """Counters and gauges by name, some of them also by code; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[tuple[str, str], float] = {}

    def add(self, name: str, amount: float = 1, code: str = "") -> None:
        """Add to a counter."""
        with self._lock:
            self._values[name, code] = self._values.get((name, code), 0) + amount

    def put(self, name: str, value: float) -> None:
        """Set a gauge."""
        with self._lock:
            self._values[name, ""] = value

    def get(self, name: str, code: str = "") -> float:
        """Return a value, 0 if it was never set."""
        with self._lock:
            return self._values.get((name, code), 0)

    def prometheus(self) -> str:
        """Return all values in the text format of Prometheus, version 0.0.4."""
        with self._lock:
            values = dict(self._values)
        lines = []
        for name, (kind, help_) in _ABOUT.items():
            lines += [f"# HELP upmri_{name} {help_}", f"# TYPE upmri_{name} {kind}"]
            found = {code: value for (one, code), value in values.items() if one == name} or {"": 0.0}
            for code, value in sorted(found.items()):
                label = f'{{code="{code}"}}' if code else ""
                lines.append(f"upmri_{name}{label} {value:.10g}")
        return "\n".join(lines) + "\n"
