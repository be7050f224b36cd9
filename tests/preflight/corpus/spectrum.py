"""Learns a filter on spectra; the reference spectrum is complex128."""

import numpy as np
import torch
from torch import nn

device = torch.device("mps")
reference = torch.from_numpy(np.fft.rfft(np.hanning(32)))
reference = reference.to(device)  # expect: complex128
taps = nn.Parameter(torch.ones(17, device=device))
signal = torch.randn(8, 32, device=device)
optimizer = torch.optim.Adam([taps], lr=0.01)
for _ in range(5):
    optimizer.zero_grad()
    spectrum = torch.fft.rfft(signal) * taps
    loss = (spectrum - reference).abs().mean()
    loss.backward()
    optimizer.step()
