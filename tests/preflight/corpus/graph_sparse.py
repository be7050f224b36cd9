"""A graph network with a sparse adjacency matrix on the device."""

import torch
from torch import nn

device = torch.device("mps")
edges = torch.randint(0, 10, (2, 30))
adjacency = torch.sparse_coo_tensor(edges, torch.ones(30), (10, 10)).coalesce()
on_device = adjacency.to(device)  # expect: sparse-tensor
model = nn.Linear(5, 2).to(device)
optimizer = torch.optim.Adam(model.parameters())
x, labels = torch.randn(10, 5, device=device), torch.randint(0, 2, (10,), device=device)
for _ in range(4):
    loss = nn.functional.cross_entropy(torch.sparse.mm(on_device, model(x)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
