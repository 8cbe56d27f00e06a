"""Structured removal: a smaller network with the same outputs.

`shrink` removes units (channels, features, heads) that do nothing, because nothing reads them or because their value is
constant. It works in four steps, one package each; imports only point from later to earlier steps:

    trace    the model as an ATen graph without in-place operations
    analyse  abstract interpretation: propagate unit labels and known constants
    decide   which units are live, as a least fixed point; the plan that follows
    apply    carry out the plan on a copy, on the graph or in place; verify the outputs

What is not analysed, or does not verify, stays, and the plan says why. `api` has the public calls, `remaining` what
they would leave at this moment of a training.

An example. Channel 1 of the convolution is dead, and the batch norm shifts it to 0.5:

    model = nn.Sequential(nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2))
    with torch.no_grad():
        model[0].weight[1], model[1].bias[1] = 0, 0.5
    gossamer.shrink(model, torch.randn(1, 1, 6, 6))

*Trace.* `torch.export` gives five operations, `conv2d`, `batch_norm`, `relu`, `flatten` and `linear`, on eight
placeholders for the parameters and buffers (`0.weight`, ..., `4.bias`) and one for the input.

*Analyse.* The rule of `conv2d` labels the output channels 1, 2, 3, expanded over the 4 x 4 positions, and unifies the
labels of dimension 0 of `0.weight` with them. All weights of channel 1 (label 2) are zero: its value is the known
constant 0. `batch_norm` keeps the labels, unifies those of scale, shift, running mean and running variance with them,
and computes the constant (0 - mean) / sqrt(var + eps) * scale + 0.5 = 0.5, which `relu` keeps. `flatten` is executed on
labels and constants as it is: positions 0-15 carry label 1, 16-31 label 2, 32-47 label 3. `linear` labels its two
outputs, unifies dimension 1 of `4.weight` with the 48 inputs, and records a dependency: each output reads the inputs
for which its weight is not zero; inputs 16-31 are constant, and foldable since the layer has a bias and no padding. The
outputs of the model are pinned.

*Decide.* The two outputs are pinned, hence live. They read labels 1 and 3, which become live. They read label 2 too,
but it is foldable, so it does not become live, and no shape needs it: the class of label 2 is removed. The plan keeps
indices 0 and 2 of every tensor that runs along the channels, keeps columns 0-15 and 32-47 of `4.weight`, folds
0.5 * (sum of columns 16-31) into `4.bias`, and changes `out_channels` and `num_features` to 2 and `in_features` to 32.
88 of 131 parameters stay.

*Apply.* The model is copied with the smaller tensors in place of the full ones, the amounts are added to the bias, the
attributes are set, and the outputs are compared with those of the model on the example, on two random inputs of its
shape, and on one of another batch size. (The model accepts no other image size; otherwise that would change too. The
analysis was repeated at that size, and the constant 0.5 is the same there, so it may be folded.)
"""

from gossamer.shrinking.api import GraphFormWarning, plan, shrink, shrink_
from gossamer.shrinking.apply import GuardError, ParameterState, register_state, take, zero_dead_biases
from gossamer.shrinking.decide import Change, Channels, Fold, Plan, Size
from gossamer.shrinking.remaining import Remaining
from gossamer.shrinking.stand_in import ShardedRemaining, StandIn
from gossamer.shrinking.trace import state_tensors

__all__ = [
    "Change",
    "Channels",
    "Fold",
    "GraphFormWarning",
    "GuardError",
    "ParameterState",
    "Plan",
    "Remaining",
    "ShardedRemaining",
    "Size",
    "StandIn",
    "plan",
    "register_state",
    "shrink",
    "shrink_",
    "state_tensors",
    "take",
    "zero_dead_biases",
]
