"""Times its steps with CUDA's events, on a stream, and asks the card about itself."""

import torch
from torch import nn


def main():
    card = torch.cuda.get_device_properties(0)  # expect: hardcoded-cuda
    print(card.name, card.total_memory // 2**30, torch.cuda.memory_allocated())
    model = nn.Linear(4, 1).cuda()  # expect: hardcoded-cuda
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    start = torch.cuda.Event(enable_timing=True)  # expect: hardcoded-cuda
    end = torch.cuda.Event(enable_timing=True)  # expect: hardcoded-cuda
    side = torch.cuda.Stream()  # expect: hardcoded-cuda
    weights = torch.cuda.FloatTensor([1.0, 2.0, 3.0, 4.0])  # expect: hardcoded-cuda
    for _ in range(5):
        with torch.cuda.stream(side):  # expect: hardcoded-cuda
            x = torch.cuda.FloatTensor(8, 4).normal_()  # expect: hardcoded-cuda
        torch.cuda.current_stream().wait_stream(side)  # expect: hardcoded-cuda
        x.record_stream(side)
        start.record()
        loss = model(x * weights).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        end.record()
        end.synchronize()
        print(start.elapsed_time(end), loss.item())  # expect: sync-in-step


if __name__ == "__main__":
    main()
