"""Where a model stops to fit: sizes of effects, each with its reason. The tests are guards alone:
with a million rows every model is wrong beyond doubt, and many are useful.
"""

# Variance of the outcomes over that of the model: standard deviations of coefficients are too small
# by the root, 10 % and 22 %.
DISPERSION, BAD_DISPERSION = 1.2, 1.5
# Share of zeros above what the model expects.
ZEROS, BAD_ZEROS = 0.03, 0.06
# Share of rows that intervals hold, and how often labels occur, beside what was promised.
COVERAGE, BAD_COVERAGE = 0.03, 0.06
# Share of rows beyond three standard deviations, 0.0027 of normal ones.
TAILS, BAD_TAILS = 0.008, 0.02
# Share of the residuals' variance that a curve in a column, or in the prediction, explains.
TREND, BAD_TREND = 0.01, 0.05
# Spread of residuals where it is largest over that where it is smallest, among five parts.
SPREAD, BAD_SPREAD = 1.5, 2.5
# Standard deviations that hold for any noise (A⁻¹CA⁻¹) over those of the model.
WIDTH, BAD_WIDTH = 1.2, 1.5
# How far one row, or the prior, moves the posterior, in its standard deviations.
INFLUENCE, PRIOR = 1.0, 1.0
# Guards: a chance below this, shared by all columns, and a number of standard errors.
CHANCE, ERRORS = 1e-3, 3.3
