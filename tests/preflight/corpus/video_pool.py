"""A small video classifier; the fallback is on, in time."""

import os

os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "1"

import torch
from torch import nn


class VideoNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(1, 4, 3, padding=1)
        self.pool = nn.AdaptiveMaxPool3d(2)
        self.head = nn.Linear(32, 2)

    def forward(self, clip):
        features = self.pool(self.conv(clip).relu())  # expect: fallback-operator
        return self.head(features.flatten(1))


device = torch.accelerator.current_accelerator() or torch.device("cpu")
model = VideoNet().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
clips, labels = torch.randn(4, 1, 4, 8, 8), torch.tensor([0, 1, 0, 1])
for _ in range(3):
    loss = nn.functional.cross_entropy(model(clips.to(device)), labels.to(device))
    optimizer.zero_grad()
    loss.backward()  # expect: fallback-operator
    optimizer.step()
