"""gossamer in skorch: a callback, with the sizes in the history.

python examples/skorch_net.py [EPOCHS]
"""

import sys

import torch
from sklearn.datasets import load_digits
from skorch import NeuralNetClassifier
from torch import nn

import gossamer
from gossamer.adapters.skorch import SparsityCallback


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 10))


def main(epochs):
    torch.manual_seed(0)
    data = load_digits()
    images, labels = (data.data / 16).astype("float32"), data.target
    example = torch.zeros(1, 64)
    net = NeuralNetClassifier(
        Net,
        max_epochs=epochs,
        lr=0.05,
        batch_size=64,
        optimizer=torch.optim.SGD,
        optimizer__momentum=0.9,
        criterion=nn.CrossEntropyLoss,
        verbose=0,
        callbacks=[("sparsity", SparsityCallback(lambda module: gossamer.integrated_tl1(module, 7e-4), example))],
    )
    net.fit(images, labels)
    for epoch, kept in enumerate(net.history[:, "gossamer/params_kept"]):
        print(f"epoch {epoch + 1}: {kept:.1%} of the weights, accuracy {net.history[epoch, 'valid_acc']:.4f}")

    small = dict(net.callbacks_)["sparsity"].small_
    print(gossamer.measure(small, example))
    x = torch.from_numpy(images)
    print("the same outputs:", torch.allclose(small(x), net.module_(x), atol=1e-4))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
