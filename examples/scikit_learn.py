"""gossamer as a scikit-learn estimator: in a pipeline, in a grid search, and as a selection of features.

python examples/scikit_learn.py [EPOCHS]
"""

import sys

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import gossamer
from gossamer.adapters.sklearn import SparseClassifier


def main(epochs):
    images, labels = load_digits(return_X_y=True)
    images, test_images, labels, test_labels = train_test_split(images, labels, random_state=0)
    scaler = MinMaxScaler().fit(images)

    pipeline = make_pipeline(MinMaxScaler(), SparseClassifier(epochs=epochs, random_state=0))
    search = GridSearchCV(pipeline, {"sparseclassifier__strength": [1e-3, 1e-2]}, cv=2).fit(images, labels)
    best = search.best_estimator_[-1]
    accuracy = search.score(test_images, test_labels)
    print(f"{search.best_params_}: accuracy {accuracy:.4f}, {best.sparsity_:.1%} of the weights are zero")

    selection = SparseClassifier(n_features=20, epochs=epochs, random_state=0)
    selection.fit(scaler.transform(images), labels)
    print(f"20 of 64 pixels: accuracy {selection.score(scaler.transform(test_images), test_labels):.4f}")
    print("the pixels:", *selection.selected_features_)

    small, x = best.shrink(), torch.tensor(scaler.transform(test_images))
    print(gossamer.measure(small, x[:1]))
    print("the same outputs:", torch.allclose(small(x), best.network_(x)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
