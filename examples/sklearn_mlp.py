"""A scikit-learn perceptron with honest probabilities: the posterior of its last layer, and one
temperature chosen on rows that it has not seen.
"""

from __future__ import annotations

import warnings

import numpy as np
from calibration import scores
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ornstein as orn

X, y = load_digits(return_X_y=True)
X_train, X_rest, y_train, y_rest = train_test_split(X, y, train_size=600, random_state=0)
X_held, X_test, y_held, y_test = train_test_split(X_rest, y_rest, train_size=300, random_state=0)

warnings.simplefilter("ignore", ConvergenceWarning)  # it stops at the training loss that we want
perceptron = make_pipeline(
    StandardScaler(), MLPClassifier((64, 32), alpha=0.0, max_iter=200, random_state=0)
).fit(X_train, y_train)

post = orn.from_sklearn(perceptron, X_train, y_train, held_out=(X_held, y_held), progress=False)
print(post)
print("verdict:", post.check().level)

print("on new rows")
print("  trained network:", scores(np.clip(perceptron.predict_proba(X_test), 1e-12, 1), y_test))
print("  last layer:     ", scores(post.predict(X_test).mean, y_test))

doubtful = np.argmin(post.predict(X_test).mean.max(axis=1))
chances = post.predict(X_test[doubtful : doubtful + 1]).mean[0]
best = np.argsort(chances)[::-1][:2]
print(f"most doubtful: {best[0]} ({chances[best[0]]:.0%}) or {best[1]} ({chances[best[1]]:.0%})")
