"""A generator and a discriminator, two optimizers; losses are read at the end."""

import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("mps" if torch.backends.mps.is_available() else "cpu")
generator = nn.Sequential(
    nn.ConvTranspose2d(8, 4, 4),
    nn.BatchNorm2d(4),
    nn.ReLU(),
    nn.ConvTranspose2d(4, 1, 2, 2),
    nn.Tanh(),
).to(device)
discriminator = nn.Sequential(
    nn.Conv2d(1, 4, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(64, 1)
).to(device)
g_optimizer = torch.optim.Adam(generator.parameters(), 2e-4, betas=(0.5, 0.999))
d_optimizer = torch.optim.Adam(discriminator.parameters(), 2e-4, betas=(0.5, 0.999))
real = torch.rand(6, 1, 8, 8, device=device)
ones, zeros = torch.ones(6, 1, device=device), torch.zeros(6, 1, device=device)
losses = []
for _ in range(4):
    fake = generator(torch.randn(6, 8, 1, 1, device=device))
    d_loss = F.binary_cross_entropy_with_logits(
        discriminator(real), ones
    ) + F.binary_cross_entropy_with_logits(discriminator(fake.detach()), zeros)
    d_optimizer.zero_grad()
    d_loss.backward()
    d_optimizer.step()
    g_loss = F.binary_cross_entropy_with_logits(discriminator(fake), ones)
    g_optimizer.zero_grad()
    g_loss.backward()
    g_optimizer.step()
    losses.append(torch.stack([d_loss, g_loss]).detach())
print(torch.stack(losses).cpu().tolist())
