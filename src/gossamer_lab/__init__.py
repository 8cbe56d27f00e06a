"""The laboratory: the `gossamer` command, data sets, networks, training runs, experiments and benchmarks.

It uses the public names of the library `gossamer`, which never imports it. Its dependencies are in the extra `lab`:
`pip install 'gossamer[lab]'`.
"""
