"""gossamer with accelerate: attach before `prepare`; the state is in what `save_state` writes.

python examples/accelerate_loop.py [EPOCHS]
"""

import logging
import sys
import tempfile

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gossamer
from gossamer.adapters.sizes import log_sizes


def main(epochs):
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
    logger = logging.getLogger("sizes")
    logger.setLevel(logging.INFO)
    torch.manual_seed(0)
    data = load_digits()
    images, labels = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
    example = images[:1]

    model = nn.Sequential(nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    handle = gossamer.attach(optimizer, gossamer.integrated_tl1(model, strength=7e-4))
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(epochs):
            if epoch == epochs * 3 // 4:
                handle.hold()
            for x, y in loader:
                optimizer.zero_grad()
                accelerator.backward(nn.functional.cross_entropy(model(x), y))
                optimizer.step()
            accelerator.save_state(folder)  # `load_state` goes on from here
            log_sizes(logger, gossamer.measure(model, example), epoch + 1)

    trained = accelerator.unwrap_model(model).eval()
    small = gossamer.shrink(trained, example)
    print(gossamer.measure(small, example))
    print("the same outputs:", torch.allclose(small(images), trained(images), atol=1e-4))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
