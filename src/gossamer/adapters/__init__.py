"""gossamer inside other people's training loops, one module for each framework.

    gossamer.adapters.lightning      `SparsityCallback` for Lightning
    gossamer.adapters.transformers   `SparsityCallback` for the Trainer of Hugging Face
    gossamer.adapters.skorch         `SparsityCallback` for skorch
    gossamer.adapters.sklearn        `SparseClassifier`, `SparseRegressor`: estimators and feature selection
    gossamer.adapters.sizes          sizes as numbers to log; TensorBoard and `logging`

Each module imports its framework, which the extra of the same name installs (`pip install 'gossamer[lightning]'`).
`import gossamer` imports none of them.
"""
