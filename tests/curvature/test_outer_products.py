"""Sums of outer products, by pairs of features and by blocks of predictors: both against the
definition, row by row.
"""

from __future__ import annotations

import numpy as np
import pytest
from helpers import relative

from ornstein.curvature.outer_products import FeaturePairs, PredictorBlocks

FEATURES, PREDICTORS = 3, 4
FEATURE_OF, PREDICTOR_OF = (part.ravel() for part in np.indices((FEATURES, PREDICTORS)))
CASES = {
    "by feature": np.arange(FEATURE_OF.size),
    "by predictor": np.argsort(PREDICTOR_OF, kind="stable"),
    "shuffled": np.random.default_rng(0).permutation(FEATURE_OF.size),
    "some missing": np.array([0, 1, 3, 4, 6, 7, 9, 10, 11]),
}


@pytest.mark.parametrize("kind", [FeaturePairs, PredictorBlocks])
@pytest.mark.parametrize("case", CASES)
def test_sums_and_spreads_are_those_of_the_definition(kind, case):
    feature_of, predictor_of = FEATURE_OF[CASES[case]], PREDICTOR_OF[CASES[case]]
    size, rng = feature_of.size, np.random.default_rng(1)
    covariance = rng.normal(size=(size, size))
    covariance = covariance @ covariance.T
    outer, total, wanted = kind(feature_of, predictor_of, PREDICTORS), 0.0, np.zeros((size, size))
    for rows in (5, 7, 2):  # memory that grows, and memory of which a part is used
        features = rng.normal(size=(rows, FEATURES + 1))  # the last column is seen by nobody
        weights = rng.normal(size=(rows, PREDICTORS, PREDICTORS))
        weights = weights + weights.transpose(0, 2, 1)
        jacobians = np.zeros((rows, size, PREDICTORS))
        jacobians[:, np.arange(size), predictor_of] = features[:, feature_of]
        products = outer.products(features.copy())
        found = outer.spread(products, outer.coefficients(covariance))
        assert relative(found, jacobians.transpose(0, 2, 1) @ covariance @ jacobians) < 1e-13
        total = total + outer.summed(products, weights)
        wanted += np.sum(jacobians @ weights @ jacobians.transpose(0, 2, 1), axis=0)
    assert relative(outer.whole(total), wanted) < 1e-13
