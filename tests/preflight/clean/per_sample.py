"""Gradients of each example by torch.func, and a Jacobian, on mps."""

import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap


def main():
    device = torch.device("mps")
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_of(parameters, x, y):
        shift = torch.ones(1).to(device)
        return (functional_call(model, parameters, (x,)) - y + shift).square().mean()

    for _ in range(5):
        x, y = torch.randn(8, 3, device=device), torch.randn(8, 1, device=device)
        parameters = {name: p.detach() for name, p in model.named_parameters()}
        each = vmap(grad(loss_of), in_dims=(None, 0, 0))(parameters, x, y)
        for name, parameter in model.named_parameters():
            parameter.grad = each[name].mean(0)
        optimizer.step()
    print(jacrev(lambda z: z**3)(torch.ones(2, device=device)).shape)


if __name__ == "__main__":
    main()
