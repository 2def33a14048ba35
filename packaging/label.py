"""Print the OpenRecon label of this folder in the form that the Dockerfile needs: JSON in base64.

docker build -f packaging/Dockerfile --build-arg OPENRECON="$(python packaging/label.py)" -t upmri:1.0.0 .
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

LABEL = Path(__file__).with_name("openrecon.json")


def encoded(path: Path = LABEL) -> str:
    """Return the label in base64, without spaces between its values."""
    return base64.b64encode(json.dumps(json.loads(path.read_text()), separators=(",", ":")).encode()).decode()


if __name__ == "__main__":
    sys.stdout.write(encoded() + "\n")
