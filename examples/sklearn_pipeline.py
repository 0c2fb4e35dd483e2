"""A Bayesian regression in a scikit-learn pipeline: the prior by cross-validation, predictions with
honest intervals.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from ornstein import BayesianRegressor

X, y = load_diabetes(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)

pipeline = make_pipeline(
    PolynomialFeatures(1, include_bias=False).set_output(transform="pandas"),
    BayesianRegressor(draws=250, random_state=0),
)
search = GridSearchCV(pipeline, {"bayesianregressor__prior_precision": [1.0, 100.0]}, cv=3).fit(
    X_train, y_train
)
regression = search.best_estimator_[-1]

print("best prior precision", search.best_params_["bayesianregressor__prior_precision"])
print(f"R² on new rows {search.score(X_test, y_test):.2f}")
for name, mean, sd in zip(
    regression.feature_names_in_, regression.coef_, regression.posterior_.sd, strict=False
):
    print(f"  {name:4s} {mean:8.0f} ± {sd:.0f}")
mean, sd = regression.predict(search.best_estimator_[:-1].transform(X_test), return_std=True)
print(f"90 % intervals hold {np.mean(np.abs(y_test - mean) < 1.645 * sd):.0%} of the new rows")
print("verdict:", regression.verdict_.level)
