"""gossamer in a training loop of your own: an optimizer, a scheduler, a final phase, then a smaller network in files.

python examples/your_own_loop.py [EPOCHS]
"""

import math
import sys
import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

import gossamer


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, images):
        return self.classifier(self.features(images))


def digits():
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = order[:1437], order[1437:]
    return images[train], labels[train], images[test], labels[test]


def accuracy(model, images, labels):
    model.eval()
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).float().mean().item()
    model.train()
    return right


def main(epochs):
    torch.manual_seed(0)
    images, labels, test_images, test_labels = digits()
    example = images[:2]

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)

    # The two lines: which weights, and the size to reach in three quarters of the training. The penalty of a weight is
    # proportional to its multiply-adds, because these are what the target counts.
    regularizer = gossamer.integrated_tl1(model, example=example, cost_exponent=1)
    steps = epochs * 3 // 4 * math.ceil(len(labels) / 64)
    handle = gossamer.attach(optimizer, regularizer, target=gossamer.Target(flops=0.1), steps=steps)

    for epoch in range(epochs):
        if epoch == epochs * 3 // 4:
            print(handle.reached)  # from here on the zeros are held, and the remaining weights recover
            print(gossamer.shrink_(model, example, optimizer=optimizer))  # the rest of the training is faster
        for batch in torch.randperm(len(labels)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
        scheduler.step()
        print(f"epoch {epoch + 1}: test accuracy {accuracy(model, test_images, test_labels):.4f}")

    model.eval()
    small = gossamer.shrink(model, example)
    print(gossamer.measure(small, example[:1]))
    print("largest difference of the outputs:", (small(test_images) - model(test_images)).abs().max().item())

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "net.safetensors")
        gossamer.save(small, path, sparse=True)
        again = gossamer.load(path, Net()).eval()
        print(f"{path.stat().st_size:,} bytes; the same outputs: {torch.equal(again(example), small(example))}")
        gossamer.export_onnx(again, Path(folder, "net.onnx"), example)  # checked in ONNX Runtime


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
