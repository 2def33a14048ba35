"""
An operator of your own
=======================

A patient moves halfway through a scan. Fifteen lines of Python describe it, and every method can use them.
"""

# %%
# An operator is a class with ``shape``, ``forward`` (A x) and ``adjoint`` (A* y). Here the first half of the lines is
# measured before the patient moves down by some pixels, and the second half afterwards. Conjugate gradients, gradients
# of any order, ``.H`` and ``.to(device)`` come from the base class.
import torch

import upmri
from upmri.evaluation import comparison
from upmri.physics.fourier import fft2c, ifft2c


class Moved(upmri.physics.Operator):
    """A x = M₁ F S x + M₂ F S T x, with T a shift by some pixels along the readout."""

    def __init__(self, maps, mask, shift):
        self.shape, self.maps, self.shift = (len(maps), *maps.shape[-2:]), maps, shift
        late = mask.cumsum(-1) > mask.sum(-1, keepdim=True) // 2
        self.before, self.after = (mask & ~late)[:, None], (mask & late)[:, None]

    def forward(self, image):
        """A x."""
        moved = image.roll(self.shift, -2)
        return self.before * fft2c(self.maps * image[:, None]) + self.after * fft2c(self.maps * moved[:, None])

    def adjoint(self, data):
        """A* y."""
        before = (self.maps.conj() * ifft2c(self.before * data)).sum(1)
        after = (self.maps.conj() * ifft2c(self.after * data)).sum(1)
        return before + after.roll(-self.shift, -2)


# %%
# The data are simulated: the demo's brain, eight coils, three times as fast as a full scan, and a shift of 4 pixels.
# ⟨A x, y⟩ = ⟨x, A* y⟩ shows that forward and adjoint belong together.
still = upmri.simulate(upmri.demo.brain()[1], coils=8, acceleration=3, noise=0.0)
operator = Moved(still.maps, still.mask, shift=4)
noise = torch.randn(still.kspace.shape, dtype=torch.complex64, generator=torch.Generator().manual_seed(0))
sigma = 0.01 * still.reference.abs().max().item()
data = operator(still.reference) + sigma * still.mask[:, None] * noise
x, y = still.reference, noise
print("adjoint:", torch.vdot(operator(x).flatten(), y.flatten()), torch.vdot(x.flatten(), operator.H(y).flatten()))
print(f"largest eigenvalue of A*A: {operator.norm():.2f}")

# %%
# A problem is an operator with its data and noise level. ``upmri`` uses the shipped prior, which was trained on scans
# of the usual kind and has never seen one with motion. Such priors expect A*A to have a largest eigenvalue near 1; for
# another one, use ``operator / operator.norm() ** 0.5`` and divide the data and sigma by the same number.
problem = upmri.Problem(operator, data, sigma=sigma)
recs = {name: upmri.reconstruct(problem, name) for name in ("sense", "cg-sense")}
recs["upmri"] = upmri.reconstruct(problem, "upmri", model="brain")

# %%
# For comparison, the usual operator, which takes the patient for still.
usual = upmri.physics.SenseOperator(still.maps, still.mask)
recs["sense, motion ignored"] = upmri.reconstruct(upmri.Problem(usual, data, sigma=sigma), "sense")
images = {name: rec.image for name, rec in recs.items()}
scores = {name: upmri.evaluate(image, still.reference) for name, image in images.items()}
for name, values in scores.items():
    print(f"{name:<22} {values['psnr']:.1f} dB")
figure = comparison(still.reference, images, scores=scores, title="Simulated motion, 3×")
