"""A variational autoencoder made under a default device; settings in time and real."""

import os

os.environ["PYTORCH_ENABLE_MPS_FALLBACK"] = "1"
os.environ["PYTORCH_MPS_HIGH_WATERMARK_RATIO"] = "1.0"
os.environ["PYTORCH_MPS_LOW_WATERMARK_RATIO"] = "0.8"

import torch
import torch.nn.functional as F
from torch import nn

torch.set_default_device("mps")
torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 4))
decoder = nn.Sequential(nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, 16))
optimizer = torch.optim.RMSprop([*encoder.parameters(), *decoder.parameters()])
pictures = torch.rand(64, 16)
for _ in range(8):
    batch = pictures[torch.randint(0, 64, (16,))]
    mean, log_variance = encoder(batch).chunk(2, dim=1)
    code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
    kl = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).mean()
    loss = F.binary_cross_entropy_with_logits(decoder(code), batch) + kl
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    print(decoder(torch.randn(4, 2)).sigmoid().mean().item())
