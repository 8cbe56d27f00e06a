"""The laboratory beside the library: the `gossamer` command, data sets, networks, training runs, experiments.

Everything here uses the library `gossamer` through its public names; the library never imports the laboratory. Its
dependencies come with the extra `lab`: `pip install 'gossamer[lab]'`.
"""
