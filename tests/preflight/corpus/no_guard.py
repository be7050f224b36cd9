"""Starts workers at the top level; its dataset makes mps tensors."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = torch.device("mps")


class Noise(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.full((4,), float(index), device=device), index % 2


loader = DataLoader(Noise(), batch_size=8, num_workers=2)  # expect: device-tensor-in-worker
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, labels in loader:  # expect: no-main-guard
    loss = nn.functional.cross_entropy(model(inputs), labels.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
