import os
import subprocess
import sys

import numpy as np
import pytest

from upmri.core.errors import InputError
from upmri.evaluation.benchmark.store import Store

SCORES = {"psnr": 30.0, "ssim": 0.9, "nmse": 0.01}
SCAN = {"grp": "g", "person": "p", "name": "n", "slice": 0, "acceleration": 4.0, "true_acceleration": 3.9, "maps": "m"}


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "results.sqlite")
    yield made
    made.close()


def test_what_is_put_is_there(store, tmp_path):
    store.add_scan("s", **SCAN)
    store.add_variant("v", "sense", {"damping": 0.1}, {})
    image = np.linspace(0, 1, 12).reshape(3, 4)
    store.put("s", "v", SCORES, 1.5, {"seed": 0}, image)
    store.put("s", "unnamed", SCORES, 1.5, {})
    assert store.done("s") == {"v", "unnamed"}
    other = Store(tmp_path / "results.sqlite")  # another process
    _, row = other.rows()
    assert (row.scan, row.group, row.person, row.acceleration, row.variant) == ("s", "g", "p", 4.0, "v")
    assert (row.psnr, row.ssim, row.nmse, row.seconds) == (30.0, 0.9, 0.01, 1.5)
    assert other.settings("v") == {"damping": 0.1}
    assert np.allclose(other.picture("s", "v"), image, atol=1e-3)
    assert other.picture("s", "unnamed") is None
    other.close()


def test_pictures_come_back_as_they_were(store):
    real = np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4)
    for name, image in (("magnitude", real), ("complex", (real * np.exp(4j * real)).T)):
        store.put_picture("s", name, image)
        found = store.picture("s", name)
        assert np.iscomplexobj(found) == (name == "complex")
        assert found.shape == image.shape
        assert np.allclose(found, image, atol=1e-3)


def test_a_row_s_order_is_not_that_of_its_coming(tmp_path):
    stores = []
    for turn in (1, -1):
        store = Store(tmp_path / f"{turn}.sqlite")
        for key in ("a", "b", "c")[::turn]:
            store.add_scan(key, **SCAN | {"name": key})
            for variant in ("v", "w")[::turn]:
                store.add_variant(variant, "sense", {}, {})
                store.put(key, variant, SCORES, 0.0, {})
        stores.append(store.rows())
        store.close()
    assert stores[0] == stores[1]
    assert len(stores[0]) == 6


def test_a_key_of_two_origins_has_two_names(store, tmp_path):
    """The first origin has the key itself, also where another process enters it; asking stores nothing."""
    assert store.name_of("s", {"noise": 0.2}) == "s"
    assert store.enter("s", {"noise": 0.1, "coils": 4}) == "s"
    other = Store(tmp_path / "results.sqlite")
    assert other.enter("s", {"coils": 4, "noise": 0.1}) == "s"
    second = other.name_of("s", {"noise": 0.2})
    assert second.startswith("s #")
    assert store.enter("s", {"noise": 0.2}) == second
    found = dict(other._base.execute("SELECT scan, facts FROM origin"))
    assert found == {"s": '{"coils": 4, "noise": 0.1}', second: '{"noise": 0.2}'}
    other.close()


def test_one_has_a_scan_at_a_time(store, tmp_path):
    """A process that lives keeps its claim; one that died, or this one's forerunner of the same number, does not."""
    code = (
        "import sys; from pathlib import Path; from upmri.evaluation.benchmark.store import Store\n"
        "with Store(Path(sys.argv[1])).claim('s') as mine: print(mine, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "results.sqlite")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "True\n"
        with store.claim("s") as mine:
            assert not mine
        with store.claim("t") as mine:
            assert mine
        other.kill()
        other.wait()
        with store.claim("s") as mine:
            assert mine


def test_a_claim_is_given_back_whatever_happens(store):
    with pytest.raises(ZeroDivisionError), store.claim("s") as mine:
        assert mine
        raise ZeroDivisionError
    assert store._base.execute("SELECT count(*) FROM claim").fetchone() == (0,)


def test_another_machine_s_claim_lasts_an_hour(store, monkeypatch):
    store._base.execute("INSERT INTO claim VALUES ('s', 'elsewhere', ?, strftime('%s'))", [os.getpid()])
    with store.claim("s") as mine:
        assert not mine
    store._base.execute("UPDATE claim SET since = since - 3601")
    with store.claim("s") as mine:
        assert mine


def test_something_else_is_refused(tmp_path):
    (tmp_path / "results.sqlite").write_bytes(b"not a database, but long enough to look at" * 100)
    with pytest.raises(InputError) as error:
        Store(tmp_path / "results.sqlite")
    assert error.value.path == str(tmp_path / "results.sqlite")
