// Constant SGD written out by hand: the practical limit of one core. Never part of the package.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

struct Generator {  // xoshiro128++ with Lemire's bounded integers
    uint32_t s[4];
    explicit Generator(uint64_t seed) {
        for (auto& word : s) {
            seed += 0x9e3779b97f4a7c15ull;
            uint64_t z = seed;
            z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
            z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
            word = static_cast<uint32_t>((z ^ (z >> 31)) >> 32);
        }
    }
    static uint32_t turn(uint32_t x, int k) { return (x << k) | (x >> (32 - k)); }
    uint32_t next() {
        const uint32_t result = turn(s[0] + s[3], 7) + s[0], t = s[1] << 9;
        s[2] ^= s[0]; s[3] ^= s[1]; s[1] ^= s[2]; s[0] ^= s[3]; s[2] ^= t; s[3] = turn(s[3], 11);
        return result;
    }
    uint32_t below(uint32_t n) { return static_cast<uint32_t>((static_cast<uint64_t>(next()) * n) >> 32); }
};

}  // namespace

constexpr int CHUNK = 512;  // rows whose predictors are held at a time, so that the sigmoid runs in vectors

// family: 0 linear, 1 logistic. WIDTH is the number of columns where it is small, 0 otherwise: then loops unroll.
template <int WIDTH>
static void run(int family, const float* x, const float* y, int64_t rows, int columns, int batch, float step, float prior,
                int64_t steps, uint64_t seed, float* theta) {
    const int width = WIDTH ? WIDTH : columns;
    Generator generator(seed);
    std::vector<float> gradient(width);
    int64_t chosen[CHUNK];
    float residual[CHUNK], target[CHUNK];
    for (int64_t t = 0; t < steps; ++t) {
        std::fill(gradient.begin(), gradient.end(), 0.0f);
        for (int first = 0; first < batch; first += CHUNK) {
            const int count = std::min(CHUNK, batch - first);
            for (int b = 0; b < count; ++b) {
                chosen[b] = generator.below(static_cast<uint32_t>(rows));
                __builtin_prefetch(x + chosen[b] * width);
                __builtin_prefetch(y + chosen[b]);
            }
            for (int b = 0; b < count; ++b) {
                const float* row = x + chosen[b] * width;
                float predictor = 0.0f;
                for (int d = 0; d < width; ++d) predictor += row[d] * theta[d];
                residual[b] = predictor;
                target[b] = y[chosen[b]];
            }
            if (family == 1)
                for (int b = 0; b < count; ++b) residual[b] = 1.0f / (1.0f + std::exp(-residual[b]));
            for (int b = 0; b < count; ++b) residual[b] -= target[b];
            for (int b = 0; b < count; ++b) {
                const float* row = x + chosen[b] * width;
                for (int d = 0; d < width; ++d) gradient[d] += residual[b] * row[d];
            }
        }
        for (int d = 0; d < width; ++d) theta[d] -= step * (gradient[d] / batch + prior * theta[d]);
    }
}

// theta is updated in place.
extern "C" void scalar_sgd(int family, const float* x, const float* y, int64_t rows, int columns, int batch,
                           float step, float prior, int64_t steps, uint64_t seed, float* theta) {
    switch (columns) {
        case 4: return run<4>(family, x, y, rows, columns, batch, step, prior, steps, seed, theta);
        case 10: return run<10>(family, x, y, rows, columns, batch, step, prior, steps, seed, theta);
        case 11: return run<11>(family, x, y, rows, columns, batch, step, prior, steps, seed, theta);
        default: return run<0>(family, x, y, rows, columns, batch, step, prior, steps, seed, theta);
    }
}

// theta is (classes, columns), row-major, so that the loops over columns run in vectors.
extern "C" void softmax_sgd(const float* x, const int32_t* y, int64_t rows, int columns, int classes, int batch,
                            float step, float prior, int64_t steps, uint64_t seed, float* theta) {
    Generator generator(seed);
    std::vector<float> gradient(static_cast<size_t>(columns) * classes), logits(classes);
    std::vector<int64_t> chosen(batch);
    for (int64_t t = 0; t < steps; ++t) {
        std::fill(gradient.begin(), gradient.end(), 0.0f);
        for (auto& n : chosen) n = generator.below(static_cast<uint32_t>(rows));
        for (const int64_t n : chosen) {
            const float* row = x + n * columns;
            for (int k = 0; k < classes; ++k) {
                const float* weights = theta + static_cast<int64_t>(k) * columns;
                float total = 0.0f;
                for (int d = 0; d < columns; ++d) total += row[d] * weights[d];
                logits[k] = total;
            }
            const float largest = *std::max_element(logits.begin(), logits.end());
            float total = 0.0f;
            for (int k = 0; k < classes; ++k) total += logits[k] = std::exp(logits[k] - largest);
            for (int k = 0; k < classes; ++k) {
                const float residual = logits[k] / total - (k == y[n] ? 1.0f : 0.0f);
                float* slope = gradient.data() + static_cast<int64_t>(k) * columns;
                for (int d = 0; d < columns; ++d) slope[d] += residual * row[d];
            }
        }
        const int size = columns * classes;
        for (int j = 0; j < size; ++j) theta[j] -= step * (gradient[j] / batch + prior * theta[j]);
    }
}
