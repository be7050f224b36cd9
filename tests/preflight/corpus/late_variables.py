"""Sets what torch has read already, what does not exist, and ratios that contradict each other."""

import os

import torch
from torch import nn

os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "1"  # expect: late-variable
os.environ["PYTORCH_MPS_LOG_LEVEL"] = "DEBUG"  # expect: invented-variable
os.environ["PYTORCH_MPS_HIGH_WATERMARK_RATIO"] = "0.7"  # expect: late-variable, bad-watermark

device = torch.device("mps")
model = nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(8, 4, device=device)
for _ in range(3):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("weights", model.weight.detach().numpy())  # expect: numpy-of-mps
