"""Predicts a sine with an LSTM and packed sequences; NumPy data cast before the move."""

import numpy as np
import torch
from torch import nn

device = torch.device("mps")
series = np.sin(np.linspace(0, 20, 200))
windows = np.stack([series[i : i + 12] for i in range(64)])[..., None]
x = torch.from_numpy(windows).to(device, torch.float32)
y = torch.from_numpy(series[12:76]).float().to(device)
lengths = torch.full((64,), 12)


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 8, batch_first=True)
        self.gru = nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        h, _ = self.lstm(x)
        packed = nn.utils.rnn.pack_padded_sequence(h, lengths[: len(x)], batch_first=True)
        h, _ = self.gru(packed)
        h, _ = nn.utils.rnn.pad_packed_sequence(h, batch_first=True)
        return self.head(h[:, -1]).squeeze(1)


model = Forecast().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(2):
    for first in range(0, 64, 16):
        loss = nn.functional.mse_loss(model(x[first : first + 16]), y[first : first + 16])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, float(loss))
print(model(x).detach().cpu().numpy().mean())
