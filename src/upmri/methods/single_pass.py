"""Methods whose image is one evaluation of their network, f(A*y): they differ in how it was trained."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from upmri.methods.backbones import OperatorBackbone
from upmri.methods.base import Objective
from upmri.methods.ensure import EnsureObjective
from upmri.methods.learned import Learned
from upmri.methods.moi import MoiObjective
from upmri.methods.rei import ReiObjective
from upmri.methods.robust_ssdu import RobustSsduObjective
from upmri.methods.ssdu import SsduObjective
from upmri.methods.supervised import ModlObjective, VarnetObjective
from upmri.methods.weighted_ssdu import WeightedSsduObjective
from upmri.physics.problem import Problem


@dataclass(frozen=True)
class SinglePass(Learned):
    """One evaluation of the network, with all samples as input.

    Parameters
    ----------
    model
        Weights: a name, a file, or a loaded prior.
    """

    evaluations = 1

    def reconstruct(self, problem: Problem) -> Tensor:
        """Image of the network, corrected by its objective."""
        prior = self.prior
        objective = prior.objective
        assert isinstance(objective, OperatorBackbone)  # noqa: S101  `prior` has checked it
        image = objective.predictor(prior.network, problem)(problem.operator, problem.adjoint)
        return objective.correct(image, problem)


def _single_pass(name: str, objective: type[Objective], needs: str, summary: str) -> type[SinglePass]:
    title = "".join(word.capitalize() for word in name.split("-"))
    about = {"name": name, "objective": objective, "needs": needs, "summary": summary}
    return type(title, (SinglePass,), {**about, "__doc__": SinglePass.__doc__, "__module__": __name__})


_SPLIT, _MASKS = "undersampled scans, split", "undersampled scans, many masks"

Modl = _single_pass("modl", ModlObjective, "full images", "an unrolled CNN with exact data consistency")
Varnet = _single_pass("varnet", VarnetObjective, "full images", "cascades of U-Nets with exact data consistency")
Ssdu = _single_pass("ssdu", SsduObjective, _SPLIT, "a VarNet trained on samples that were not its input (Yaman 2020)")
WeightedSsdu = _single_pass(
    "weighted-ssdu", WeightedSsduObjective, _SPLIT, "SSDU by a second mask, weighted to stand for all of k-space"
)
RobustSsdu = _single_pass(
    "robust-ssdu", RobustSsduObjective, _SPLIT, "Weighted SSDU that also learns to denoise, by adding noise"
)
Rei = _single_pass("rei", ReiObjective, "undersampled scans", "a VarNet trained by SURE and by rotating its images")
Moi = _single_pass("moi", MoiObjective, _MASKS, "a MoDL trained by SURE and by measuring its images with other masks")
Ensure = _single_pass("ensure", EnsureObjective, _MASKS, "a MoDL trained by SURE, weighted to cover all of k-space")
