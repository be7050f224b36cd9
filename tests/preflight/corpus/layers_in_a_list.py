"""Keeps layers in a plain list, which .to() does not reach."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.rest = [nn.Linear(8, 8), nn.Linear(8, 1)]

    def forward(self, x):
        x = self.first(x)
        for layer in self.rest:
            x = layer(torch.relu(x))  # expect: mixed-devices
        return x


device = torch.device("mps")
model = Net().to(device)
optimizer = torch.optim.SGD(
    [*model.parameters(), *(p for layer in model.rest for p in layer.parameters())], lr=0.01
)
for _ in range(3):
    loss = model(torch.randn(8, 4, device=device)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
