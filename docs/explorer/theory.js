// The laws of ornstein.theory for two parameters. All functions are pure; matrices are arrays of
// rows. tests/test_explorer.py compares their numbers with those of Python.
"use strict";

const theory = (() => {
  const zeros = (rows, columns) => Array.from({ length: rows }, () => Array(columns).fill(0));
  const times = (a, b) =>
    a.map((row) => b[0].map((_, j) => row.reduce((sum, value, k) => sum + value * b[k][j], 0)));
  const plus = (a, b) => a.map((row, i) => row.map((value, j) => value + b[i][j]));
  const scaled = (factor, a) => a.map((row) => row.map((value) => factor * value));
  const transposed = (a) => a[0].map((_, j) => a.map((row) => row[j]));
  const trace = (a) => a[0][0] + a[1][1];
  const determinant = (a) => a[0][0] * a[1][1] - a[0][1] * a[1][0];
  const inverse = (a) => {
    const d = determinant(a);
    return [[a[1][1] / d, -a[0][1] / d], [-a[1][0] / d, a[0][0] / d]];
  };
  const size = (a) => Math.max(...a.flat().map(Math.abs));

  // A symmetric matrix from its eigenvalues and the angle of the first axis, in degrees.
  function rotated(first, second, degrees) {
    const angle = (degrees * Math.PI) / 180;
    const c = Math.cos(angle), s = Math.sin(angle);
    return [
      [first * c * c + second * s * s, (first - second) * c * s],
      [(first - second) * c * s, first * s * s + second * c * c],
    ];
  }

  // Eigenvalues, the larger first, and the angle of its axis.
  function axes(a) {
    const middle = trace(a) / 2, away = Math.hypot((a[0][0] - a[1][1]) / 2, a[0][1]);
    const angle = 0.5 * Math.atan2(2 * a[0][1], a[0][0] - a[1][1]);
    return { first: middle + away, second: middle - away, angle };
  }

  // The tuned preconditioners: KL-optimal for a scalar (Theorem 1), 2S/(N C_kk) for a diagonal, and
  // the matrix whose law in discrete time is the posterior.
  function preconditioner(form, { A, C, N, S, damping }) {
    if (form === "scalar") {
      const rate = (4 * S) / (N * trace(C));
      return [[rate, 0], [0, rate]];
    }
    if (form === "diagonal") {
      return [[(2 * S) / (N * C[0][0]), 0], [0, (2 * S) / (N * C[1][1])]];
    }
    const inner = plus(scaled(damping / (2 - damping), A), scaled(N / S, C));
    return scaled(2 * damping, inverse(inner));
  }

  // z' = F z + noise of z = (θ, v), and the covariance of that noise.
  function recursion(H, { A, C, S, damping }) {
    const HA = times(H, A), kept = 1 - damping;
    const noise = scaled(1 / S, times(times(H, C), H));
    const F = zeros(4, 4), Q = zeros(4, 4);
    for (let i = 0; i < 2; i += 1) {
      for (let j = 0; j < 2; j += 1) {
        const same = i === j ? 1 : 0;
        F[i][j] = same - HA[i][j];
        F[i + 2][j] = -HA[i][j];
        F[i][j + 2] = F[i + 2][j + 2] = same * kept;
        Q[i][j] = Q[i + 2][j] = Q[i][j + 2] = Q[i + 2][j + 2] = noise[i][j];
      }
    }
    return { F, Q };
  }

  // The spectral radius of F, from the size of its powers 2^k.
  function radius(F) {
    let power = F, logarithm = 0;
    for (let k = 0; k < 40; k += 1) {
      const now = size(power);
      if (now === 0) return 0;
      logarithm += Math.log(now) / 2 ** k;
      power = scaled(1 / now, power);
      power = times(power, power);
    }
    return Math.exp(logarithm);
  }

  // Σ = F Σ Fᵀ + Q by doubling; null where the recursion diverges.
  function stationary(F, Q) {
    if (radius(F) >= 1 - 1e-12) return null;
    let sum = Q, power = F;
    for (let k = 0; k < 60; k += 1) {
      sum = plus(sum, times(times(power, sum), transposed(power)));
      power = times(power, power);
      if (size(power) < 1e-300) break;
    }
    return [[sum[0][0], sum[0][1]], [sum[1][0], sum[1][1]]];
  }

  // KL(N(0, q) ‖ N(0, p)) in nats.
  function kl(q, p) {
    const ratio = times(inverse(p), q);
    return 0.5 * (trace(ratio) - 2 - Math.log(determinant(ratio)));
  }

  // Everything that the page shows of one form of the preconditioner.
  function law(form, settings) {
    const { A, N, step } = settings;
    const H = scaled(step, preconditioner(form, settings));
    const { F, Q } = recursion(H, settings);
    const posterior = inverse(scaled(N, A)), covariance = stationary(F, Q), rho = radius(F);
    const found = { form, H, F, Q, rho, covariance, posterior, relaxation: -1 / Math.log(rho) };
    if (covariance === null) return { ...found, kl_qp: null, kl_pq: null, regime: "diverges" };
    found.kl_qp = kl(covariance, posterior);
    found.kl_pq = kl(posterior, covariance);
    return { ...found, regime: regime(found) };
  }

  function regime({ covariance, posterior, kl_qp, kl_pq }) {
    if (Math.max(kl_qp, kl_pq) <= 0.05) return "the posterior";
    const [most, least] = eigenvalues(times(inverse(posterior), covariance));
    if (least > 0.9) return "too wide";
    if (most < 1.1) return "too narrow";
    return "the wrong shape";
  }

  // Real eigenvalues of a 2 × 2 matrix that is similar to a symmetric one, the larger first.
  function eigenvalues(a) {
    const middle = trace(a) / 2;
    const away = Math.sqrt(Math.max(0, middle * middle - determinant(a)));
    return [middle + away, middle - away];
  }

  // Lower triangular L with L Lᵀ = a.
  function root(a) {
    const first = Math.sqrt(Math.max(a[0][0], 0));
    const below = first > 0 ? a[1][0] / first : 0;
    return [[first, 0], [below, Math.sqrt(Math.max(0, a[1][1] - below * below))]];
  }

  return { rotated, axes, law, root, times, eigenvalues };
})();
