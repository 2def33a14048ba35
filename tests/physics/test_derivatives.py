import torch
from torch.autograd import gradcheck, gradgradcheck

from upmri.physics.derivatives import inverse, linear, outside


def matrix(rng):
    factor = rng(12, 12)
    return factor, factor @ factor.mH / 12


def test_linear_map_without_gradients_of_its_own(rng):
    factor, _ = matrix(rng)

    def there(x):
        return torch.from_numpy(x.detach().resolve_conj().numpy() @ factor.numpy().T)

    def back(y):
        return torch.from_numpy(y.detach().resolve_conj().numpy() @ factor.numpy().conj())

    x = rng(12).requires_grad_()
    assert torch.allclose(linear(x, there, back), factor @ x)
    assert gradcheck(lambda v: linear(v, there, back), (x,), check_forward_ad=True)
    assert gradgradcheck(lambda v: linear(v, there, back), (x,))
    batch = rng(12, 3)
    assert torch.allclose(torch.func.vmap(lambda v: linear(v, there, back), 1, 1)(batch), factor @ batch)


def test_inverse_has_the_gradients_of_the_dense_one(rng):
    _, normal = matrix(rng)
    rhs = rng(2, 1, 3, 4).requires_grad_()
    damping = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)

    def dense(b, value, _=None):
        system = normal + value * torch.eye(12, dtype=normal.dtype)
        return torch.linalg.solve(system, b.reshape(-1, 12).mT).mT.reshape(b.shape)

    weights = rng(2, 1, 3, 4)
    grads = [
        torch.autograd.grad((weights * solve(rhs, damping)).abs().square().sum(), (rhs, damping))
        for solve in (dense, lambda b, value: inverse(b, value, dense))
    ]
    assert torch.allclose(grads[0][0], grads[1][0])
    assert torch.allclose(grads[0][1], grads[1][1])


def test_what_is_made_outside_can_be_used_later():
    kept = []

    def apply(x):
        kept.append(outside(lambda: torch.arange(3.0)))
        return (x * kept[-1]).sum()

    torch.func.grad(apply)(torch.ones(3))
    torch.func.vmap(apply)(torch.ones(2, 3))
    with torch.inference_mode():
        apply(torch.ones(3))
    for tensor in kept:
        x = torch.ones(3, requires_grad=True)
        (x * tensor).sum().backward()
        assert torch.equal(x.grad, torch.arange(3.0))
