"""Analyse: abstract interpretation of the traced graph.

The graph is executed on abstract values instead of tensors: unit labels, and constants where they are known. View-like
operations run on them unchanged; every other operation has a rule.

    domain        labels (union-find, pins) and abstract values (labels and known constants)
    constraints   what must hold between kept units: equal counts, multiples, rectangles, size attributes
    dependencies  which units a unit reads
    plain_values  the labels of parameters that are not the weight of a layer
    facts         what is collected: layers, dependencies between units, constraints
    rules         the abstract semantics of ATen operations, one file per kind
    interpreter   the table from operations to rules, and the loop over the graph
"""

from gossamer.shrinking.analyse.domain import NO_UNIT, SIZE_FROM_INPUT, AbstractValue
from gossamer.shrinking.analyse.facts import Analysis
from gossamer.shrinking.analyse.interpreter import RULE_FAILED, analyse

__all__ = ["NO_UNIT", "RULE_FAILED", "SIZE_FROM_INPUT", "AbstractValue", "Analysis", "analyse"]
