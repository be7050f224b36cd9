"""Workers get a class that is defined inside a function, and a lambda."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate


def make_data():
    class Squares(Dataset):
        def __len__(self):
            return 32

        def __getitem__(self, index):
            x = torch.tensor([float(index)]) / 32
            return x, x**2

    return Squares()


def main():
    device = torch.device("mps")
    data = make_data()
    plain = DataLoader(data, batch_size=8, num_workers=2)  # expect: worker-cannot-load
    tidy = DataLoader(
        torch.utils.data.TensorDataset(torch.randn(32, 1), torch.randn(32, 1)),
        batch_size=8,
        num_workers=2,
        persistent_workers=True,
    )
    rows = [(torch.randn(1), torch.randn(1)) for _ in range(32)]
    odd = DataLoader(  # expect: worker-cannot-load
        rows, 8, num_workers=1, collate_fn=lambda rows: default_collate(rows)
    )
    model = nn.Linear(1, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for loader in (plain, tidy, odd):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
