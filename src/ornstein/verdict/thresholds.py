"""Every bound that the verdict uses, in one place, each with its reason. Findings print the bound
they are compared with.

Distances are KL divergences in nats between Gaussians of the same mean and covariance. What they
mean for one parameter alone:

    0.02    an sd too wide by 14 %, or a mean off by 0.2 sd
    0.05    an sd too wide by 23 %, or a mean off by 0.3 sd
    0.1     an sd too wide by 33 %, or a mean off by 0.45 sd
    0.2     an sd too wide by 48 %, or a mean off by 0.6 sd
"""

from ornstein.theory.stationarity import DOUBTFUL_P as DOUBTFUL_P
from ornstein.theory.stationarity import IMPOSSIBLE_P as IMPOSSIBLE_P

# A law nearer than this is as good as the posterior for intervals and predictions. Samplers whose
# step trades bias for speed (SGLD, SGHMC) are tuned to this same 0.05.
SMALL_KL = 0.05
# Beyond this some interval is off by half its length: a caution is no longer enough.
LARGE_KL = 0.2
# A measured distance has an error of its own, about 0.02, on top of what was asked of the
# prediction.
MEASURED_KL = 0.07
# A chance fluctuation of a KL divergence is excused up to this many of its standard deviations (it
# is a sum of squares, skewed to the right, so that three are exceeded in about 1 % of all runs).
CHANCE = 3.0

# Relaxation times per chain. Below 100 the chain's own error of the slowest variance is above 10 %,
# and a drift as slow as the chain is long cannot be told from noise.
ENOUGH_RELAXATION_TIMES = 100.0
# Monte-Carlo error of the mean along the slowest direction, in its standard deviations, over all
# chains: √(2τ/steps). A quarter of an sd (32 relaxation times in all) puts a distance of 0.03 on
# top of everything else, and no variance is known to a third.
LARGEST_MEAN_ERROR = 0.25


# Vehtari et al. (2021): rank-normalised R-hat below 1.01 and 100 effective draws per chain of four.
# 1.1 is the older bound, beyond which chains plainly disagree.
R_HAT, LARGEST_R_HAT = 1.01, 1.1
EFFECTIVE_DRAWS = 400.0
# With 50 the standard error of a 5 or 95 % point is 0.3 sd: too few to tell.
TOO_FEW_DRAWS = 50.0

# Gradient noise is Gaussian: excess kurtosis that the minibatch noise leaves in the draws; 0.5
# moves the end of a 95 % interval by 1.7 % of its length.
KURTOSIS = 0.5
# Noise is constant: change of the noise along the chain that theory did not expect; the variance of
# the draws follows it one to one, and 10 % of variance in every one of ten directions is a distance
# of 0.025.
NOISE_CHANGE = 0.1
# Steps are small: the largest eigenvalue of HA as a share of its stability bound. Above 0.9 the
# fourth moments grow beyond those of a Gaussian, and an error of a few per cent in A decides
# between stable and not.
STABILITY_SHARE = 0.9
# Loss is quadratic: distance between mean and mode in posterior sds. A posterior whose mean and
# mode are half an sd apart is not Gaussian.
MEAN_SHIFT = 0.5
# Loss is quadratic: half the variance of the log posterior less its quadratic, where the draws are:
# to second order the KL between the posterior and Laplace's approximation. The draws follow a part
# of it (their mean moves as the posterior's does): no error yet.
NON_QUADRATIC = 0.25
# Vehtari, Simpson, Gelman, Yao and Gabry (2024): importance weights with a Pareto tail above 0.7
# are not to be relied on. Where the weights hardly differ (effective share above 0.9) the shape of
# their tail does not matter.
PARETO_K, HARMLESS_SHARE = 0.7, 0.9
# Noise matches curvature: largest |λ − 1| of A⁻¹C for samplers that take C for A: variance is wrong
# by that factor in that direction.
NOISE_RATIO = 0.3

# Moved draws, probes and modes together raise a false alarm in this share of sound fits.
FALSE_ALARMS = 0.002
# A change in nats along one direction, or of all together, that is called a caution, and one that
# takes trust away; and the same for a 5, 50 or 95 % point, in sds.
SMALL_CHANGE, LARGE_CHANGE = 0.05, 0.1
SMALL_MOVE, LARGE_MOVE = 0.15, 0.3
# Beyond 2000 parameters: sds of all parameters, or of the predictors of rows, on average. 10 % of
# every sd moves the ends of a 95 % interval by a fifth of an sd, 20 % is a KL of 0.04 in every
# single direction. Shifts of means (root mean square) have the bounds of a 5, 50 or 95 % point.
SMALL_WIDTH, LARGE_WIDTH = 0.1, 0.2
# The share of the posterior's mass that the draws miss.
SMALL_MASS, LARGE_MASS = 0.01, 0.05
