"""The ADM U-Net for complex images: it predicts a velocity, or the noise in a noisy image."""

from __future__ import annotations

from torch import Tensor, nn

from upmri.networks.adm import SIZES, Adm
from upmri.networks.channels import channels, complex_image


class ImageNetwork(nn.Module):
    """Network f(z, t): z complex (slice, H, W), t (slice,) → complex (slice, H, W).

    Parameters
    ----------
    size
        Size of the U-Net: a name in :data:`upmri.networks.adm.SIZES`.
    """

    def __init__(self, size: str) -> None:
        super().__init__()
        self.network = Adm(SIZES[size])

    def forward(self, z: Tensor, t: Tensor) -> Tensor:
        """Evaluate at time t ∈ [0, 1]."""
        return complex_image(self.network(channels(z), t))
