"""Rules: the abstract semantics of ATen operations, one file per kind of operation.

A rule `rule(analysis, node)` computes the abstract value of a node from those of its inputs and adds the facts that
follow (unified or pinned labels, dependencies, shape constraints). It must be sound: a label may be left unpinned only
if the network computes the same without its unit, and a constant may be called known only if it holds for every input.
A rule that does not cover a case returns `analysis.opaque(node, reason)`. The table that maps operations to rules is
in `analyse.interpreter`.
"""
