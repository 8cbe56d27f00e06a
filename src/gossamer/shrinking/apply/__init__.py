"""Apply: carry out a plan, and verify the result.

    module       a smaller copy of the user's module
    graph        the exported graph made smaller, for forwards with hard-coded sizes
    in_place     the model itself made smaller, with undo
    optimizer    optimizer state and registered state, sliced like their parameters
    guards       what a graph takes for granted about its inputs, checked at each call
    definition   the arguments of a graph, at the places that they have in the model
    dims         the dimensions of the inputs, and which of them change together
    probes       random inputs, of the sizes of the example and of other sizes
    further      further sizes, at which numbers round and branches are taken
    conditioning calls at which rounding decides, which show nothing
    verify       the outputs of the full model, and the comparison with them
    dead_biases  biases of dead units set to zero, an option before shrinking

A plan is built for the copy or the graph, compared with the reference outputs of the full model, and dropped if they
differ. In place it is tried and undone first, and then applied together with the optimizer's state.
"""

from gossamer.shrinking.apply.dead_biases import biases_of_dead_units, zero_dead_biases
from gossamer.shrinking.apply.dims import at_least_two, changed_dims
from gossamer.shrinking.apply.graph import smaller_graph
from gossamer.shrinking.apply.guards import GuardError, accepted_inputs, accepts, refuse_size_one
from gossamer.shrinking.apply.in_place import InPlace, apply_in_place, matching_copy
from gossamer.shrinking.apply.module import smaller_copy, take
from gossamer.shrinking.apply.optimizer import ParameterState, check_owner, register_state
from gossamer.shrinking.apply.probes import is_cheap
from gossamer.shrinking.apply.verify import Reference, evaluation_reference, training_reference

__all__ = [
    "GuardError",
    "InPlace",
    "ParameterState",
    "Reference",
    "accepted_inputs",
    "accepts",
    "apply_in_place",
    "at_least_two",
    "biases_of_dead_units",
    "changed_dims",
    "check_owner",
    "evaluation_reference",
    "is_cheap",
    "matching_copy",
    "refuse_size_one",
    "register_state",
    "smaller_copy",
    "smaller_graph",
    "take",
    "training_reference",
    "zero_dead_biases",
]
