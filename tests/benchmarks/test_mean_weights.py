"""The mean of two files of weights."""

from dataclasses import replace

import pytest
import torch

from upmri.methods.upmri_objective import UpmriObjective
from upmri.weights.files import load_prior, save_weights

OBJECTIVE = UpmriObjective(cascades=1, width=4)


def write(path, value, objective=OBJECTIVE):
    """Weights that all have this value."""
    tensors = {name: torch.full_like(own, value) for name, own in objective.network().state_dict().items()}
    card = {
        "name": path.stem,
        "about": f"about {path.stem}",
        "training": {"steps": 7},
        "spread": {"radius": [5.0, 12.0], "gain": [1.0, 1.0], "exponent": [0.3, 0.3]},
    }
    return save_weights(path, tensors, "upmri", objective, card)


@pytest.mark.parametrize(
    ("words", "values", "shares", "expected"),
    [
        ((), (1.0, 3.0), [0.5, 0.5], 2.0),
        (("--shares", "3", "1"), (1.0, 3.0), [0.75, 0.25], 1.5),
        ((), (1.0, 3.0, 8.0), [0.3333, 0.3333, 0.3333], 4.0),
    ],
)
def test_weights_are_averaged_and_the_card_says_so(tmp_path, words, values, shares, expected):
    from mean_weights import main

    folders = [tmp_path / str(number) for number in range(len(values))]  # trainings of one name in several folders
    for folder in folders:
        folder.mkdir()
    files = [write(folder / "mine.safetensors", value) for folder, value in zip(folders, values, strict=True)]
    out = tmp_path / "mean.safetensors"
    main([*map(str, files), *words, "-o", str(out)])
    mean = load_prior(out)
    for weight in mean.network.state_dict().values():
        torch.testing.assert_close(weight, torch.full_like(weight, expected), atol=1e-6, rtol=1e-6)
    assert (mean.method, mean.objective) == ("upmri", OBJECTIVE)
    assert mean.card["about"] == "about mine"
    assert mean.card["training"] == {"steps": 7, "mean": [{"file": "mine", "share": share} for share in shares]}
    assert "spread" not in mean.card
    for path, value in zip(files, values, strict=True):  # as they were
        assert all((weight == value).all() for weight in load_prior(path).network.state_dict().values())


@pytest.mark.parametrize("shares", [["1"], ["1", "1", "1"], ["0", "0"]])
def test_other_numbers_of_shares_are_refused(tmp_path, capsys, shares):
    from mean_weights import main

    files = [str(write(tmp_path / f"{number}.safetensors", 1.0)) for number in range(2)]
    with pytest.raises(SystemExit):
        main([*files, "--shares", *shares, "-o", str(tmp_path / "mean.safetensors")])
    assert "a share for each of 2 files" in capsys.readouterr().err


@pytest.mark.parametrize("change", [{"width": 5}, {"cascades": 2}, {"levels": 2}])
def test_weights_of_another_network_are_no_mean(tmp_path, capsys, change):
    from mean_weights import main

    first = write(tmp_path / "first.safetensors", 1.0)
    second = write(tmp_path / "second.safetensors", 3.0, replace(OBJECTIVE, **change))
    with pytest.raises(SystemExit):
        main([str(first), str(second), "-o", str(tmp_path / "mean.safetensors")])
    assert f"they differ in {next(iter(change))}" in capsys.readouterr().err
    assert not (tmp_path / "mean.safetensors").exists()
